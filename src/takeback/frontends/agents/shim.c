/* The hook, compiled: `shim PYTHON -I -S …/shim.py HOST EVENT`, payload on stdin.

   It does what relay.py does if a daemon is there and answers, without the start of a Python. In every other case it
   becomes the command that it was given: only relay.py starts a daemon, asks again and says why a call is denied. So
   the rules are written once. relay.py reads from one more word how far this program came:

     SECONDS   nothing that counts was answered: ask, with so much time left; 0: do not ask again
     answered  stdin is not the payload but the answer, which this program did not understand

   tests/agents/test_shims.py holds the lists here and there alike, and both programs to one table. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SDK "claude-sdk"
#ifndef SECONDS /* a test has no time for that */
#define BEFORE_SECONDS 280
#define SECONDS 50
#endif
#define MOST (64u << 20) /* bytes of a payload */
#define PART (64u << 10)
enum { DENIED = 2, NO_COMMAND = 64 };

static const char *const BEFORE[] = {
    "PreToolUse", "preToolUse", "BeforeTool", "beforeShellExecution", "beforeMCPExecution", "tool.execute.before",
};
static const char *const TOLD[] = {
    "CLAUDE", "CODEX", "GEMINI", "OPENCODE", "CURSOR", "TAKEBACK", "XDG_", "TMPDIR", "HOME", "PWD", "PATH", "USER",
};
#define COUNT(list) (sizeof(list) / sizeof *(list))

extern char **environ;

struct bytes {
    char *at;
    size_t length, room;
};

static struct {
    char **command; /* what this program becomes, and how many words that has */
    int words;
    const char *host, *event;
    bool before;
    long long until; /* milliseconds, when no answer counts any more */
} call;

/* Python cannot be started, or nothing can be written: the only sentence of this program's own. */
static _Noreturn void fail(const char *what, int error) {
    if (!call.before)
        exit(0);
    dprintf(2, "takeback did not let this call through, because it could not record a way back: %s (%s).\n", what,
            strerror(error));
    if (strcmp(call.host, SDK) == 0)
        dprintf(2, "takeback is on because the program calls `with_takeback`; without that call it is off.\n");
    else
        dprintf(2, "`takeback hook uninstall %s` switches takeback off.\n", call.host);
    exit(DENIED);
}

static void make_room(struct bytes *bytes, size_t more) {
    if (bytes->room - bytes->length >= more)
        return;
    size_t room = bytes->room * 2 > bytes->length + more ? bytes->room * 2 : bytes->length + more;
    char *at = realloc(bytes->at, room);
    if (!at)
        fail("its hook has no memory", ENOMEM);
    bytes->at = at;
    bytes->room = room;
}

static void append(struct bytes *bytes, const void *more, size_t length) {
    if (!length)
        return;
    make_room(bytes, length);
    memcpy(bytes->at + bytes->length, more, length);
    bytes->length += length;
}

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

/* False when the time is over. Without a time it waits for ever. */
static bool is_ready(int fd, short what, long long until) {
    for (;;) {
        long long left = until ? until - now() : -1;
        if (until && left <= 0)
            return false;
        struct pollfd one = {fd, what, 0};
        if (poll(&one, 1, (int)left) > 0)
            return true;
    }
}

/* To its end. 0, or what went wrong. */
static int read_all(int fd, struct bytes *into, size_t most, long long until) {
    for (;;) {
        make_room(into, PART);
        ssize_t length = read(fd, into->at + into->length, into->room - into->length);
        if (length == 0)
            return 0;
        if (length > 0)
            into->length += (size_t)length;
        else if (errno == EAGAIN && !is_ready(fd, POLLIN, until))
            return ETIMEDOUT;
        else if (errno != EAGAIN && errno != EINTR)
            return errno;
        if (into->length > most)
            return EFBIG;
    }
}

/* 0, or what went wrong. */
static int write_all(int fd, const char *at, size_t length, long long until) {
    while (length) {
        ssize_t written = write(fd, at, length);
        if (written >= 0)
            at += written, length -= (size_t)written;
        else if (errno == EAGAIN && !is_ready(fd, POLLOUT, until))
            return ETIMEDOUT;
        else if (errno != EAGAIN && errno != EINTR)
            return errno;
    }
    return 0;
}

/* Python takes over. It reads the content as if no one had read stdin before. */
static _Noreturn void hand_over(const char *content, size_t length, const char *how_far) {
    char *words[call.words + 2];
    memcpy(words, call.command, (size_t)call.words * sizeof *words);
    words[call.words] = (char *)how_far;
    words[call.words + 1] = NULL;
    if (content) {
        int file = memfd_create("payload", MFD_CLOEXEC);
        int error = file < 0 ? errno : write_all(file, content, length, 0);
        if (error || lseek(file, 0, SEEK_SET) < 0 || dup2(file, 0) < 0)
            fail("its hook could not hand the call over", error ? error : errno);
    }
    execv(words[0], words);
    fail("its hook could not start Python", errno);
}

static _Noreturn void let_python_ask(const char *payload, size_t length) {
    char left[32];
    long long time = call.until - now();
    if (time < 0)
        time = 0;
    snprintf(left, sizeof left, "%lld.%03lld", time / 1000, time % 1000);
    hand_over(payload, length, left);
}

/* The first of its name, as Python has it, if the daemon is told about it. */
static bool is_told(char **entry) {
    size_t name = strcspn(*entry, "=");
    if ((*entry)[name] != '=')
        return false;
    bool told = false;
    for (size_t i = 0; i < COUNT(TOLD); i++)
        told = told || strncmp(*entry, TOLD[i], strlen(TOLD[i])) == 0;
    for (char **earlier = environ; told && earlier < entry; earlier++)
        told = strncmp(*earlier, *entry, name + 1) != 0;
    return told;
}

static void put_request(struct bytes *request, const struct bytes *payload) {
    const char *root = call.command[call.words - 3], *end = root + strlen(root);
    for (int up = 0; up < 4; up++)
        while (end > root && *--end != '/') {}
    struct bytes told = {0};
    for (char **entry = environ; *entry; entry++)
        if (is_told(entry)) {
            append(&told, "", told.length != 0); /* a zero byte between two of them */
            append(&told, *entry, strlen(*entry));
        }
    char numbers[80];
    int length = snprintf(numbers, sizeof numbers, " %d %zu %zu ", (int)getppid(), told.length, payload->length);
    append(request, "takeback 1 ", 11); /* HOST EVENT PARENT LENGTH LENGTH ROOT, the environment, the payload */
    append(request, call.host, strlen(call.host));
    append(request, " ", 1);
    append(request, call.event, strlen(call.event));
    append(request, numbers, (size_t)length);
    append(request, root, (size_t)(end - root));
    append(request, "\n", 1);
    append(request, told.at, told.length);
    append(request, payload->at, payload->length);
    free(told.at);
}

/* Where the socket is. False if only Python can say what is wrong. */
static bool put_place(struct bytes *place) {
    const char *home = getenv("HOME"), *store = getenv("TAKEBACK_STORE"), *state = getenv("XDG_STATE_HOME");
    home = home ? home : "";
    if (store && *store) {
        bool below = strncmp(store, "~/", 2) == 0;
        append(place, home, below ? strlen(home) : 0);
        append(place, store + below, strlen(store) - below);
    } else {
        bool named = state && *state == '/';
        if (!named && !*home)
            return false;
        append(place, named ? state : home, strlen(named ? state : home));
        append(place, "/.local/state", named ? 0 : 13);
        append(place, "/takeback", 9);
    }
    append(place, "/hooks", sizeof "/hooks");
    return true;
}

/* By a handle of its directory: a path may be longer than a socket's name. -1: there is no daemon. */
static int connected(void) {
    struct bytes place = {0};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int directory = put_place(&place) ? open(place.at, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(place.at);
    if (directory < 0)
        return -1;
    snprintf(name.sun_path, sizeof name.sun_path, "/proc/self/fd/%d/socket", directory);
    /* Not to wait here: for one that takes no more connections Python waits. */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&name, sizeof name) < 0) {
        close(fd);
        fd = -1;
    }
    close(directory);
    return fd;
}

/* A number and what ends it, or -1. */
static long number(const char **at, const char *end, char ending) {
    const char *start = *at;
    long value = 0;
    while (*at < end && **at >= '0' && **at <= '9' && *at - start < 9)
        value = value * 10 + (*(*at)++ - '0');
    return *at > start && *at < end && *(*at)++ == ending ? value : -1;
}

/* What the daemon said; Python takes over if it said nothing that counts. */
static struct bytes exchanged(const struct bytes *payload) {
    struct bytes request = {0}, answer = {0};
    int fd = connected();
    if (fd < 0)
        let_python_ask(payload->at, payload->length);
    put_request(&request, payload);
    int error = write_all(fd, request.at, request.length, call.until);
    if (!error)
        error = read_all(fd, &answer, SIZE_MAX, call.until);
    close(fd);
    free(request.at);
    if (error == ETIMEDOUT)
        hand_over("", 0, "0");
    bool is_gone = error == ECONNRESET || error == EPIPE; /* one that was killed may still be reached for a moment */
    if (error && !is_gone)
        fail("its daemon could not be reached", error);
    if (is_gone || !answer.length || (answer.length == 6 && memcmp(answer.at, "again\n", 6) == 0))
        let_python_ask(payload->at, payload->length);
    return answer;
}

int main(int argc, char **argv) {
    if (argc < 5 || argv[argc - 3][0] != '/')
        return NO_COMMAND;
    call.command = argv + 1;
    call.words = argc - 1;
    call.host = argv[argc - 2];
    call.event = argv[argc - 1];
    for (size_t i = 0; i < COUNT(BEFORE); i++)
        call.before = call.before || strcmp(call.event, BEFORE[i]) == 0;

    signal(SIGPIPE, SIG_IGN); /* as Python has it */
    struct bytes payload = {0};
    int error = read_all(0, &payload, MOST, 0);
    call.until = now() + 1000LL * (call.before ? BEFORE_SECONDS : SECONDS);
    if (error == EFBIG)
        let_python_ask(payload.at, payload.length);
    if (error)
        close(0), let_python_ask(NULL, 0); /* so that Python takes no rest for the whole */
    struct bytes answer = exchanged(&payload);
    const char *at = answer.at, *end = answer.at + answer.length;
    long code = number(&at, end, ' '), out = number(&at, end, ' '), err = number(&at, end, '\n');
    if (code < 0 || code > 255 || out < 0 || err < 0 || out + err != end - at)
        hand_over(answer.at, answer.length, "answered");
    error = write_all(1, at, (size_t)out, 0);
    if (!error)
        error = write_all(2, at + out, (size_t)err, 0);
    if (error)
        fail("its answer could not be written", error);
    return (int)code;
}
