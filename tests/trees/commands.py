# ruff: noqa: E501  # a command is one line
"""Commands that destroy, overwrite, move and change: what agents type. Each is a line for /bin/sh, run in a tree.

A line may fail; it must do the same each time, whichever way it is run.
"""

import shutil
from typing import NamedTuple

REMOVE = r"""
rm -rf src
rm -rf ./*
rm -rf .git
rm -rf data/old current
rm -r objs
rm -f README.md notes.txt missing.txt
rm -rf -- data/* src/*
rm -rf docs && mkdir docs
rm -rf data && cp -a src data
rm -rf src && echo now a file > src
rm README.md && mkdir README.md && echo in it > README.md/x
rm current && mkdir -p current/deep && touch current/deep/f
rmdir data/empty
rmdir -p data/empty/none data/empty
unlink notes.txt
find . -delete
find . -mindepth 1 -delete
find . -name '*.c' -delete
find data -type f -delete
find . -type l -delete
find . -empty -delete
find . -name '*.h' -exec rm {} +
find src -type f -print0 | xargs -0 rm -f
find . -path ./.git -prune -o -type f -exec rm -f {} \;
find . -size +10k -delete
find . -newer README.md -type f -delete
find data -depth -type d -exec rmdir {} \; 2>/dev/null
shred -n 1 -z -u secret.txt
shred -n 1 -z data/table.csv
rm -rf data/old/ && ln -s ../src data/old
rm -rf objs && touch objs
cd src && rm -rf ..?* .[!.]* *
cd data && rm -rf "$PWD"
"""

MOVE = r"""
mv notes.txt README.md
mv -f secret.txt notes.txt
mv src source
mv data src/data
mv src/lib/deep lifted
mv src/main.c src/list.c
mv -T data/old data/empty
mv README.md readme.md
mv src Src
mv src t && mv data src && mv t data
mv src t && mv t src
mv data/old data/older && mv data/older data/old
mv data d2 && mkdir data && mv d2/old data/ && rm -rf d2
mv docs/guide.md . && rmdir docs
mv -b notes.txt README.md
mv -t docs README.md notes.txt new.txt
mv current elsewhere
mv data/empty data/full && touch data/full/f
for f in src/*.c; do mv "$f" "${f%.c}.cc"; done
for f in src/*.h; do mv "$f" "$f.bak"; cp "$f.bak" "$f"; done
mkdir -p a/b/c && mv src a/b/c/ && mv a/b/c/src/lib .
mv src/lib . && rm -rf src && mv lib src
mv data/old . && ln -s ../old data/old
mv .git git-is-here
mv src/main.c data/table.csv docs/
mv -n notes.txt README.md; mv -n new.txt newer.txt
mv run.sh docs/guide.md && chmod 600 docs/guide.md
"""

OVERWRITE = r"""
: > notes.txt
echo overwritten > README.md
echo more >> notes.txt
echo through the link > current/2019.csv
truncate -s 0 notes.txt
truncate -s 10 data/blob.bin
truncate -s 5M notes.txt
truncate -s +100 data/table.csv
truncate -s 0 data/*.csv src/*.c
dd if=/dev/zero of=data/blob.bin bs=1k count=8 conv=notrunc status=none
dd if=/dev/zero of=data/blob.bin bs=1k count=4 status=none
dd if=README.md of=data/blob.bin bs=1 seek=1000 conv=notrunc status=none
dd if=/dev/zero of=new.bin bs=1M count=0 seek=8 status=none
dd if=notes.txt of=notes.txt bs=4 skip=2 conv=notrunc status=none
fallocate -l 1M new.bin
fallocate -p -o 8192 -l 16384 data/blob.bin
fallocate -z -o 0 -l 4096 data/blob.bin
fallocate -c -o 0 -l 4096 data/blob.bin
fallocate -d data/blob.bin
sed -i s/line/LINE/ notes.txt
sed -i.bak s/line/row/ notes.txt
sed -i -e 1d -e '$d' data/table.csv
sed -i s/int/long/ src/*.c src/*.h
find . -path ./.git -prune -o -name '*.c' -exec sed -i 's/return/yield/' {} +
perl -pi -e s/line/perl/ notes.txt
perl -pi.orig -e 's/int/unsigned/g' src/main.c src/list.c
perl -e 'open F, "+<", "data/blob.bin"; seek F, 500, 0; print F "patched"'
awk '{print $1}' notes.txt > t && mv t notes.txt
tr a-z A-Z < README.md > t && cat t > README.md && rm t
sort -r -o notes.txt notes.txt
sort -t, -k2 -n -r data/table.csv -o data/table.csv
head -n 3 notes.txt | tee README.md src/main.c > /dev/null
echo appended | tee -a notes.txt README.md > /dev/null
cat notes.txt README.md > both && mv both notes.txt
split -n 3 data/blob.bin data/part. && rm data/blob.bin
split -l 10 notes.txt notes. && rm notes.txt
csplit -s -f cut. notes.txt 10 20
printf '1d\nw\nq\n' | ed -s notes.txt
printf '%s\n' '%s/line/vi/' 'wq' | ex -s notes.txt
uniq notes.txt README.md
cut -d, -f1 data/table.csv > data/column && mv -f data/column data/table.csv
paste data/table.csv notes.txt > pasted.txt
expand notes.txt > t; cp t notes.txt; rm t
echo "$(cat notes.txt)" > notes.txt
gzip -n notes.txt
gzip -n -r data/old
gzip -n -k notes.txt && gunzip -c notes.txt.gz > README.md
xz -T1 data/blob.bin
bzip2 data/table.csv
cat > notes.txt < README.md
exec 3<> notes.txt && echo first >&3 && exec 3>&-
echo one > n1 && echo two > n2 && cat n2 >> n1 && rm n2
yes gone | head -c 65536 > data/blob.bin
base64 data/blob.bin > data/blob.b64 && rm data/blob.bin
iconv -f UTF-8 -t UTF-16 notes.txt > t && mv t notes.txt
"""

COPY = r"""
cp README.md notes.txt
cp -f README.md secret.txt
cp -a src copy
cp -a src/. data/
cp -r docs data
cp -al src linked
cp -a --remove-destination notes.txt README.md
cp -as "$PWD/src" shadow
cp --sparse=always data/blob.bin data/copy.bin
cp --backup=numbered README.md notes.txt && cp --backup=numbered new.txt notes.txt
cp -p run.sh docs/ && cp -p docs/run.sh src/main.c
cp -T README.md current/2020.csv
cp -a data/old data/empty && rm -rf data/old
install -m 640 notes.txt README.md
install -d -m 700 a/b/c
install -D -m 755 run.sh usr/local/bin/run
install -b -m 600 notes.txt docs/guide.md
ln -f notes.txt README.md
ln notes.txt data/notes
ln -s README.md link && ln -sfn docs link
ln -sf notes.txt README.md
ln -sfn src current
ln src/list.c src/second && echo changed by one name > src/second
ln src/list.c src/second && rm src/list.c && mv src/second src/list.c
ln notes.txt n2 && sed -i s/line/x/ n2
tar cf all.tar src && rm -rf src && tar xf all.tar && rm all.tar
tar cSf all.tar src data && tar xf all.tar --overwrite && rm all.tar
tar cf t.tar docs && rm -rf docs && mkdir docs && echo other > docs/guide.md && tar xf t.tar -C .
tar cf t.tar --remove-files docs
tar czf src.tgz src --mtime=@1 && rm -rf src
(cd src && tar cf - .) | (cd data && tar xf -)
tar cf t.tar data && tar xf t.tar --unlink-first && rm t.tar
tar cf t.tar src && tar xf t.tar --recursive-unlink && rm t.tar
$PYTHON -m zipfile -c z.zip docs src/main.c && rm -rf docs && $PYTHON -m zipfile -e z.zip . && rm z.zip
$PYTHON -m zipfile -c z.zip README.md && echo x > README.md && $PYTHON -m zipfile -e z.zip .
$PYTHON -m tarfile -c t.tar docs && $PYTHON -m tarfile -e t.tar docs2
"""

PROPERTIES = r"""
chmod -R 777 .
chmod -R go-rwx src
chmod 000 notes.txt README.md
chmod -R a-w data
chmod 4755 run.sh && chmod 2755 docs && chmod 1777 data
chmod -R u=rwX,go= .
chmod 0 data/old docs
chmod +x src/*.c
chmod u+s run.sh && chmod u-s run.sh
chown -R 12345:54321 src
chown 1:1 README.md
chown -h 77:88 current
chown -R 0:0 .
chgrp -R 4242 data
chown 12345 run.sh && chmod 4711 run.sh
touch -d 2001-02-03T04:05:06.123456789Z notes.txt
touch -d @0 src src/main.c
touch -h -d @1000000000 current
touch -r README.md notes.txt
find . -path ./.git -prune -o -exec touch -h -d @1111111111 {} +
touch -a README.md && touch -m -d @7 README.md
touch fresh new.txt docs/fresh
setfattr -n user.tag -v blue notes.txt
setfattr -n user.tag -v blue data && setfattr -n user.tag -v red data
setfattr -x user.origin notes.txt 2>/dev/null; setfattr -n user.other -v 0x000102 notes.txt
setfattr -n user.long -v "$(head -c 2000 /dev/zero | tr '\0' x)" README.md
setfattr -n user.tag -v x src/main.c && rm src/main.c
setfacl -m u:1234:rw notes.txt
setfacl -R -m g:4321:rx src
setfacl -d -m u:1234:rwx data && touch data/inherits
setfacl -m u:1234:r notes.txt && setfacl -b notes.txt
setcap cap_net_raw+ep run.sh
mkfifo pipe && chmod 600 pipe
mkfifo -m 622 data/pipe2 && rm -f new.txt
mkdir -p -m 700 x/y/z && touch x/y/z/f
mkdir a && mkdir a/b && rmdir a/b && rmdir a
mkdir -p a/b/c/d/e && rmdir -p a/b/c/d/e
mkdir $(seq -f 'd%g' 1 60) && rmdir $(seq -f 'd%g' 1 59)
for i in $(seq 1 150); do echo $i > data/f$i; done
umask 077; echo private > private; mkdir own; umask 000; echo public > public
"""

GIT = r"""
git clean -fdq
git clean -fdxq
git clean -fdXq
git checkout -q -f side
git checkout -q -- .
git checkout -q v1 -- src
git reset -q --hard
git reset -q --hard HEAD~1
git reset -q HEAD~1
git stash -q
git stash -q -u
git stash -q -u && git stash pop -q
git stash -q && git stash drop -q
git rm -rq -f src
git rm -q --cached -r src
git mv README.md READ.md
git mv src source
git add -A && git commit -q -m all
git commit -q -a --amend -m amended
git branch -q -D side && git tag -d v1
git restore -q src/tree.c
git restore -q --source=HEAD~1 .
git checkout -q -f --orphan nothing && git rm -rfq .
git reset -q --hard && git checkout -q side && echo s >> Makefile && git commit -q -am s && git rebase -q main
git reset -q --hard && git merge -q --no-ff side -m merged; git log -1 --format=%s > last
git -c pack.threads=1 gc -q --prune=now
git reflog expire --expire=now --all && git -c pack.threads=1 gc -q --prune=now
git -c pack.threads=1 repack -adq && git prune-packed -q
git reset -q --hard && git revert --no-edit HEAD
git worktree add -q wt side && rm -rf wt && git worktree prune
git reset -q --hard && git filter-branch -f --tree-filter 'rm -f README.md' HEAD >/dev/null 2>&1
git diff > p.diff && git checkout -q -- . && patch -s -p1 < p.diff
git diff v1 > p.diff; git apply -R p.diff
git archive --format=tar v1 | tar xf -
git submodule --quiet add ./ sub 2>/dev/null; git rm -qf --cached sub 2>/dev/null; rm -rf sub
git config core.bare true; git config user.name evil; git update-ref -d refs/heads/side
git reset -q --hard && git checkout -q side && git cherry-pick main
git init -q nested && touch nested/f && rm -rf .git && mv nested/.git .
"""

PROGRAMS = r"""
$PYTHON -c 'import os; os.rename("notes.txt", "README.md")'
$PYTHON -c 'import os; os.replace("src/main.c", "docs/guide.md")'
$PYTHON -c 'import os; os.link("notes.txt", "n"); os.unlink("notes.txt"); os.rename("n", "notes.txt")'
$PYTHON -c 'import os; os.rename("src", "docs/src"); os.symlink("docs/src", "src")'
$PYTHON -c 'import shutil; shutil.rmtree("src"); shutil.copytree("data", "src", symlinks=True, ignore=lambda d, n: [x for x in n if x in ("pipe", "socket")])'
$PYTHON -c 'import shutil; shutil.move("data/old", "data/empty/old")'
$PYTHON -c 'f = open("data/blob.bin", "r+b"); f.seek(40000); f.write(b"x" * 99); f.truncate(60000)'
$PYTHON -c 'import mmap; f = open("data/blob.bin", "r+b"); m = mmap.mmap(f.fileno(), 0); m[5:9] = b"mmap"; m.flush()'
$PYTHON -c 'import os; f = os.open("data/blob.bin", os.O_RDWR); os.pwrite(f, b"late", 9); os.unlink("data/blob.bin"); os.pwrite(f, b"gone", 0)'
$PYTHON -c 'import os, tempfile; h, t = tempfile.mkstemp(dir="."); os.write(h, b"atomic"); os.fsync(h); os.replace(t, "notes.txt")'
$PYTHON -c 'import os; [os.mkdir("p%d" % n) for n in range(30)]; [os.rename("p%d" % n, "q%d" % n) for n in range(30)]'
$PYTHON -c 'import os; os.mkdir("s"); os.rename("src", "s/a"); os.rename("data", "src"); os.rename("s/a", "data"); os.rmdir("s")'
$PYTHON -c 'import os; os.chdir("src"); os.rename("../src", "../moved"); open("here", "w").write("x")'
$PYTHON -c 'import os; os.truncate("notes.txt", 0); os.truncate("notes.txt", 100000)'
$PYTHON -c 'import os; os.copy_file_range(os.open("data/blob.bin", 0), os.open("notes.txt", 1), 20000)'
$PYTHON -c 'import os; d = os.open("src", 0); os.rename("main.c", "m", src_dir_fd=d, dst_dir_fd=d); os.close(os.open("n", 65, 0o640, dir_fd=d))'
$PYTHON -c 'import os; n = b"\xff\xfe"; open(n, "w").write("x"); os.rename(n, b"data/" + n); os.link(b"data/" + n, b"data/\xe9")'
$PYTHON -c 'import os; os.setxattr("notes.txt", "user.a", b"1"); os.rename("notes.txt", "b"); os.setxattr("b", "user.a", b"2")'
$PYTHON -c 'import os; os.chmod("README.md", 0); os.rename("README.md", "docs/r"); os.chmod("docs", 0o500)'
$PYTHON -c 'import os; os.posix_fallocate(os.open("notes.txt", 2), 0, 1 << 20)'
$PYTHON -c 'import sqlite3; c = sqlite3.connect("db"); c.execute("create table t (a)"); c.executemany("insert into t values (?)", [(n,) for n in range(500)]); c.commit(); c.close()'
$PYTHON -c 'import sqlite3; c = sqlite3.connect("db"); c.execute("pragma journal_mode=wal"); c.execute("create table t (a)"); c.commit(); c.execute("insert into t values (1)"); c.commit(); c.close()'
$PYTHON -c 'import socket, os; os.chdir("data"); s = socket.socket(socket.AF_UNIX); s.bind("fresh socket")'
$PYTHON -c 'import ctypes, os; r = ctypes.CDLL(None, use_errno=True).renameat2(-100, b"src", -100, b"data", 2); print(r, ctypes.get_errno())'
$PYTHON -c 'import ctypes, os; r = ctypes.CDLL(None, use_errno=True).renameat2(-100, b"notes.txt", -100, b"docs", 2); print(r, ctypes.get_errno())'
make -s; cat built
patch -s -p0 <<E
--- notes.txt
+++ notes.txt
@@ -1 +1 @@
-line 0 of the notes
+patched
E
(echo in the background > bg) & wait
sh -c 'echo $$ > /dev/null; echo child > child.txt; kill -9 $$'; rm -f notes.txt
trap 'rm -rf docs' EXIT; echo x > x
cd docs && cd .. && rm -rf docs && git status > /dev/null; mkdir docs
set -e; echo partial > README.md; false; rm -rf src
exit 3
rm -rf src; exit 7
"""

# Only where the program is there; the count of two hundred does not depend on them.
OPTIONAL = r"""
rsync: rsync -a --delete src/ data/
rsync: rsync -a --delete --inplace docs/ src/
rsync: rsync -aHAX data/ new/ && rm -rf data
rsync: mkdir e && rsync -a --delete e/ src/ && rmdir e
sqlite3: sqlite3 db 'create table t (a); insert into t values (1)' && sqlite3 db 'delete from t; vacuum'
unzip: $PYTHON -m zipfile -c z.zip docs README.md && echo x > README.md && unzip -qo z.zip && rm z.zip
cpio: find src | cpio -o --quiet > a.cpio && rm -rf src && cpio -i -d -u --quiet < a.cpio
gcc: gcc -c src/main.c -o objs/main.o && rm -f src/*.h
rename.ul: rename.ul .c .cpp src/*.c
vim: vim -es -u NONE -c '%s/line/vim/' -c 'wq' notes.txt
"""


class Command(NamedTuple):
    kind: str
    line: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.line}"


def _lines(kind: str, text: str) -> list[Command]:
    commands: list[Command] = []
    open_document = False  # a here-document goes on to the line with its E
    for line in text.strip("\n").split("\n"):
        if open_document:
            commands[-1] = Command(kind, f"{commands[-1].line}\n{line}")
            open_document = line != "E"
            continue
        commands.append(Command(kind, line))
        open_document = line.endswith("<<E")
    return commands


COMMANDS: tuple[Command, ...] = (
    *_lines("remove", REMOVE),
    *_lines("move", MOVE),
    *_lines("overwrite", OVERWRITE),
    *_lines("copy", COPY),
    *_lines("properties", PROPERTIES),
    *_lines("git", GIT),
    *_lines("programs", PROGRAMS),
)


def available() -> tuple[Command, ...]:
    """All of them, and of the optional ones those whose program is here."""
    more: list[Command] = []
    for text in OPTIONAL.strip().split("\n"):
        program, _, line = text.partition(": ")
        if shutil.which(program):
            more.append(Command("optional", line))
    return COMMANDS + tuple(more)
