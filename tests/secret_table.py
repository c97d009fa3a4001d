"""200 shapes of secrets as they stand in files, commands, requests and rows, and 100 texts that only look like one.

The values are made up when the tests run, always the same ones, so that no file of ours holds one.
"""

import random
import string
from typing import NamedTuple

_HEX = "0123456789abcdef"
_WORD = string.ascii_letters + string.digits
_URL = _WORD + "-_"
_B64 = _WORD + "+/"
_UPPER = string.ascii_uppercase + string.digits
_LOWER = string.ascii_lowercase + string.digits
_dice = random.Random(17)


class Case(NamedTuple):
    text: str
    secrets: tuple[str, ...]  # none of these may be seen


def of(signs: str, count: int) -> str:
    return "".join(_dice.choice(signs) for _ in range(count))


def mixed(signs: str, count: int) -> str:
    """With a letter of each kind and a digit, as nearly every one that is made at random."""
    return "aB3x"[: min(4, count)] + of(signs, max(0, count - 4))


def _token(context: str, head: str, tail: str) -> Case:
    return Case(context.replace("@", head + tail), (tail,))


def _uuid() -> str:
    return "-".join(of(_HEX, count) for count in (8, 4, 4, 4, 12))


def _pem(kind: str, lines: int = 6) -> tuple[str, tuple[str, ...]]:
    body = [of(_B64, 64) for _ in range(lines)]
    frame = f"{kind} PRIVATE KEY" if kind else "PRIVATE KEY"
    return "\n".join((f"-----BEGIN {frame}-----", *body, f"-----END {frame}-----")), tuple(body)


def _tokens() -> list[Case]:
    jwt = f"eyJ{of(_URL, 30)}.eyJ{of(_URL, 60)}."
    return [
        _token("aws_access_key_id = @", "AKIA", of(_UPPER, 16)),
        _token("AWS_ACCESS_KEY_ID=@", "ASIA", of(_UPPER, 16)),
        _token("export AWS_BEARER_TOKEN_BEDROCK=@", "ABSK", of(_B64, 120)),
        Case(f"git clone https://ghp_{(mine := mixed(_WORD, 36))}@github.com/a/b", (mine,)),
        _token("GITHUB_TOKEN: @", "gho_", mixed(_WORD, 36)),
        _token("token ghs is @.", "ghs_", mixed(_WORD, 36)),
        _token("gh auth login --with-token <<< @", "ghu_", mixed(_WORD, 36)),
        _token('{"refresh": "@"}', "ghr_", mixed(_WORD, 76)),
        _token("machine github.com password @", "github_pat_", "11" + of(_WORD, 20) + "_" + of(_WORD, 59)),
        _token("glab auth login --token @", "glpat-", mixed(_URL, 20)),
        _token("runner: @", "glrt-", mixed(_URL, 20)),
        _token("deploy @ here", "gldt-", mixed(_URL, 20)),
        _token("curl -H 'x: @'", "glptt-", of(_HEX, 40)),
        _token("SLACK=@", "xoxb-", "1234567890-1234567890123-" + mixed(_WORD, 24)),
        _token("user @", "xoxp-", "1234567890-1234567890-" + of(_HEX, 32)),
        _token("rotating @", "xoxe.xoxp-", "1-" + of(_WORD, 60)),
        _token("socket: @", "xapp-", "1-A012345678-1234567890123-" + of(_HEX, 64)),
        _token("curl -d '{}' https://@", "hooks.slack.com/services/", "T0" + of(_UPPER, 8) + "/B0" + of(_UPPER, 8) + "/" + of(_WORD, 24)),
        _token("hook https://@", "discord.com/api/webhooks/123456789012345678/", mixed(_URL, 68)),
        _token("url: https://acme.@", "webhook.office.com/webhookb2/", _uuid() + "@" + _uuid() + "/" + of(_HEX, 32)),
        _token("bot @ started", "123456789:", "AA" + mixed(_URL, 33)),
        _token("stripe.api_key = '@'", "sk_live_", mixed(_WORD, 24)),
        _token("restricted @", "rk_live_", mixed(_WORD, 24)),
        _token("test @", "sk_test_", mixed(_WORD, 24)),
        _token("STRIPE_WEBHOOK=@", "whsec_", mixed(_WORD, 32)),
        _token("ANTHROPIC_API_KEY=@", "sk-ant-api03-", mixed(_URL, 93) + "AA"),
        _token("client = Anthropic(api_key='@')", "sk-ant-admin01-", mixed(_URL, 90)),
        _token("OPENAI_API_KEY=@", "sk-", mixed(_WORD, 48)),
        _token("openai: @", "sk-proj-", mixed(_URL, 120)),
        _token("svc @", "sk-svcacct-", mixed(_URL, 100)),
        _token("OPENROUTER @", "sk-or-v1-", of(_HEX, 64)),
        _token("langfuse @", "sk-lf-", _uuid()),
        _token("maps?x=@", "AIza", mixed(_URL, 35)),
        _token('"client_secret":"@"', "GOCSPX-", mixed(_URL, 28)),
        _token("access @", "ya29.", mixed(_URL, 120)),
        _token("refresh @", "1//0", mixed(_URL, 40)),
        _token("azure @", "", "aB3" + "8Q~" + of(_URL, 34)),
        _token("HF: @", "hf_", of(string.ascii_letters, 34)),
        _token("REPLICATE_API_TOKEN=@", "r8_", mixed(_WORD, 37)),
        _token("groq @", "gsk_", mixed(_WORD, 52)),
        _token("pplx: @", "pplx-", mixed(_WORD, 48)),
        _token("xai: @", "xai-", mixed(_WORD, 80)),
        _token("pinecone(@)", "pcsk_", mixed(_WORD, 60)),
        _token("langsmith @", "lsv2_pt_", of(_HEX, 32) + "_" + of(_HEX, 10)),
        _token("//npm.pkg/:_authToken=@", "npm_", mixed(_WORD, 36)),
        _token("twine upload -p @", "pypi-", "AgEIcHlwaS5vcmc" + mixed(_URL, 120)),
        _token(":rubygems_api_key: @", "rubygems_", of(_HEX, 48)),
        _token("cargo login @", "cio", mixed(_WORD, 32)),
        _token("nuget push -k @", "oy2", of(_LOWER, 43)),
        _token("lein deploy @", "CLOJARS_", of(_LOWER, 60)),
        _token("docker login -u me -p @", "dckr_pat_", mixed(_URL, 27)),
        _token("doctl auth init -t @", "dop_v1_", of(_HEX, 64)),
        _token("heroku @", "HRKU-", _uuid()),
        _token("fly @", "fm2_", mixed(_B64, 80)),
        _token("netlify @", "nfp_", mixed(_WORD, 36)),
        _token("supabase @", "sbp_", of(_HEX, 40)),
        _token("supabase @", "sb_secret_", mixed(_URL, 31)),
        _token("pscale @", "pscale_tkn_", mixed(_URL, 43)),
        _token("neon @", "napi_", of(_LOWER, 64)),
        _token("databricks @", "dapi", of(_HEX, 32)),
        _token("credentials app.terraform.io @", "", mixed(_WORD, 14) + ".atlasv1." + mixed(_URL, 67)),
        _token("vault login @", "hvs.", mixed(_URL, 90)),
        _token("pulumi @", "pul-", of(_HEX, 40)),
        _token("doppler @", "dp.st.", "prd." + mixed(_WORD, 43)),
        _token("op @", "ops_eyJ", mixed(_WORD, 200)),
        _token("# @", "AGE-SECRET-KEY-1", of(_UPPER, 58)),
        _token("linear @", "lin_api_", mixed(_WORD, 40)),
        _token("notion @", "ntn_", mixed(_WORD, 46)),
        _token("notion @", "secret_", mixed(_WORD, 43)),
        _token("figma @", "figd_", mixed(_URL, 43)),
        _token("airtable @", "pat", mixed(_WORD, 14) + "." + of(_HEX, 64)),
        _token("jira @", "ATATT3x", "FfGF0" + mixed(_URL, 180)),
        _token("bitbucket @", "ATBB", mixed(_WORD, 32)),
        _token("newrelic @", "NRAK-", of(_UPPER, 27)),
        _token("grafana @", "glsa_", mixed(_WORD, 32) + "_" + of(_HEX, 8)),
        _token("sentry-cli --x @", "sntryu_", of(_HEX, 64)),
        _token("posthog @", "phx_", mixed(_WORD, 43)),
        _token("dynatrace @", "dt0c01.", of(_UPPER, 24) + "." + of(_UPPER, 64)),
        _token("honeycomb @", "hcaik_", "01" + of(_LOWER, 62)),
        _token("circleci @", "CCIPAT_", mixed(_WORD, 22) + "_" + of(_HEX, 40)),
        _token("buildkite @", "bkua_", of(_HEX, 40)),
        _token("jfrog @", "AKCp", mixed(_WORD, 69)),
        _token("src @", "sgp_", of(_HEX, 40)),
        _token("sonar @", "squ_", of(_HEX, 40)),
        _token("postman @", "PMAK-", of(_HEX, 24) + "-" + of(_HEX, 34)),
        _token("contentful @", "CFPAT-", mixed(_URL, 43)),
        _token("shopify @", "shpat_", of(_HEX, 32)),
        _token("square @", "sq0atp-", mixed(_URL, 22)),
        _token("braintree @", "access_token$production$", of(_LOWER, 16) + "$" + of(_HEX, 32)),
        _token("sendgrid @", "SG.", mixed(_URL, 22) + "." + mixed(_URL, 43)),
        _token("mailgun @", "key-", of(_HEX, 32)),
        _token("mailchimp @", "", of(_HEX, 32) + "-us14"),
        _token("brevo @", "xkeysib-", of(_HEX, 64) + "-" + mixed(_WORD, 16)),
        _token("resend @", "re_", mixed(_WORD, 8) + "_" + mixed(_WORD, 24)),
        _token("twilio @", "SK", of(_HEX, 32)),
        _token("mapbox @", "sk.eyJ", mixed(_URL, 60) + "." + mixed(_URL, 22)),
        _token("tailscale up --x @", "tskey-auth-", mixed(_WORD, 12) + "-" + mixed(_WORD, 32)),
        _token("plaid @", "access-production-", _uuid()),
        _token("razorpay @", "rzp_live_", mixed(_WORD, 14)),
        _token("rave @", "FLWSECK-", of(_HEX, 32) + "-X"),
        _token("graph @", "EAA", mixed(_WORD, 150)),
        _token("twitter @", "AAAAAAAAAAAAAAAAAAAAA", mixed(_WORD, 90)),
        _token("dropbox @", "sl.", mixed(_URL, 130)),
        _token("shippo @", "shippo_live_", of(_HEX, 40)),
        _token("easypost @", "EZAK", mixed(_WORD, 54)),
        _token("prefect @", "pnu_", mixed(_WORD, 36)),
        _token("aliyun @", "LTAI", mixed(_WORD, 20)),
        _token("yandex @", "AQVN", mixed(_URL, 36)),
        _token("id_token @", jwt, mixed(_URL, 43)),
        Case(f"log line\\n{jwt}{(tail := mixed(_URL, 43))}\\nnext", (tail,)),
    ]  # fmt: skip


def _named() -> list[Case]:
    def value(count: int = 14) -> str:
        return mixed(_WORD, count - 1) + "7"

    def case(text: str, secret: str | None = None) -> Case:
        held = secret or value()
        return Case(text.replace("@", held), (held,))

    return [
        # Files of variables.
        case("DB_PASSWORD=@"),
        case("export PGPASSWORD=@"),
        case('MYSQL_ROOT_PASSWORD="@"'),
        case("APP_SECRET='@'"),
        case("SECRET_KEY_BASE=@", of(_HEX, 128)),
        case("DJANGO_SECRET_KEY=@", "aB3!x" + of(_WORD + "!#%^&*(-_=+)", 45)),
        case("AWS_SECRET_ACCESS_KEY=@", mixed(_B64, 40)),
        case("aws_session_token = @", mixed(_B64, 200) + "=="),
        case("AZURE_CLIENT_SECRET=@", "x" + of(_URL, 39)),
        case("ENCRYPTION_KEY=@", of(_HEX, 64)),
        case("JWT_SECRET=@", of(_B64, 44)),
        case("API_KEY_PROD=@", of(_HEX, 32)),
        case("REDIS_PASSWORD=@", "p,a;s#s" + value()),
        case('PASSPHRASE="@"', "correct horse battery staple nine"),
        case("ENV DATADOG_API_KEY=@", of(_HEX, 32)),
        case("+DB_PASS=@"),
        case("-ADMIN_PASSWORD=@", "!Qaz2wsx"),
        case("SMTP_PASSWORD=@", "hunter2"),
        case("ADMIN_PASSWORD=@", "letmein99"),
        case("SESSION_SECRET=@", of(_HEX, 40)),
        # YAML, JSON, TOML, XML, ini, programs.
        case("password: @"),
        case("  db_password: '@'"),
        case('    secretKey: "@"', of(_B64, 44)),
        case("  client-secret: @  # prod"),
        case("data:\n  password: @", "aHVudGVyMi1hbmQtbW9yZQ=="),
        case('{"password": "@"}'),
        case('{"user": "me", "apiKey": "@", "n": 1}', of(_HEX, 32)),
        case('"clientSecret":"@"'),
        case('{"args": "{\\"password\\": \\"@\\"}"}'),
        case("{'auth_token': '@'}"),
        case('[database]\npassword = "@"'),
        case("token = '@'"),
        case("<password>@</password>"),
        case('<add key="x" password="@"/>'),
        case("spring.datasource.password=@"),
        case("passwd = @  ; of the ini file"),
        case('password := "@"'),
        case("'password' => '@',"),
        case('const apiKey = "@";', of(_WORD, 24) + "4"),
        case('API_TOKEN: str = "@"'),
        case('os.environ["DB_PASSWORD"] = "@"'),
        case('private_key_passphrase: "@"'),
        case('"accessToken": "@"', of(_URL, 40) + "8"),
        case("ansible_become_password: @"),
        case("master_key: @", of(_HEX, 32)),
        case("webhook_key=@", of(_HEX, 32)),
        # Commands.
        case("tool --password @ --verbose"),
        case("tool --password=@ x"),
        case("tool --token @", of(_HEX, 40)),
        case("app --api-key '@' run", of(_HEX, 32)),
        case("mysql -u root -p@ -e 'select 1'"),
        case("mysqldump --single-transaction -p@ app"),
        case("mariadb -uroot -p@"),
        case("sshpass -p @ ssh host"),
        case("sshpass -p '@' ssh host"),
        case("redis-cli -h cache -a @ flushall"),
        case("curl -u admin:@ https://host/"),
        case("curl -s --user 'admin:@' https://host/"),
        case("wget --http-password=@ https://host/"),
        case("ldapsearch -D cn=admin -w @ -b dc=x"),
        case("htpasswd -cb .htpasswd admin @"),
        case("openssl rsa -in k.pem -passin pass:@"),
        case("docker login -u me -p @ registry"),
        case("az login --service-principal -u app -p @ --tenant t"),
        case("PGPASSWORD=@ psql -h db"),
        case("env RESTIC_PASSWORD=@ restic backup /"),
        case("helm install x --set db.password=@,replicas=2"),
        case("kubectl create secret generic x --from-literal=password=@"),
        case("docker run -e POSTGRES_PASSWORD=@ postgres"),
        case("http -a admin:@ https://host/"),
        # Requests.
        case("Authorization: Bearer @", mixed(_URL, 40)),
        case("authorization: Basic @", "YWRtaW46aHVudGVyMg=="),
        case('-H "Authorization: token @"', of(_HEX, 40)),
        case("'Authorization': 'Bearer @'", mixed(_URL, 32)),
        case("Proxy-Authorization: Basic @", "dXNlcjpwYXNzd29yZDEy"),
        case("X-Api-Key: @", of(_HEX, 32)),
        case("X-Auth-Token: @", mixed(_WORD, 32)),
        case("PRIVATE-TOKEN: @", mixed(_WORD, 20)),
        case("Cookie: sessionid=@; theme=dark", mixed(_LOWER, 32)),
        case("Set-Cookie: sid=@; Path=/; HttpOnly", mixed(_LOWER, 32)),
        case("curl -b 'PHPSESSID=@' https://host", of(_LOWER, 26)),
        case("GET /x?access_token=@&page=2", of(_URL, 32) + "5"),
        case("https://host/x?api_key=@&b=1", of(_HEX, 32)),
        case("https://a.blob.core.windows.net/c?sv=2024&sig=@&se=1", mixed(_WORD, 42) + "%3D"),
        case("https://b.s3.amazonaws.com/k?X-Amz-Signature=@", of(_HEX, 64)),
        # Addresses.
        case("postgres://app:@\2db/prod"),
        case("DATABASE_URL=mysql://root:@\x02127.0.0.1:3306/app"),
        case("redis://:@\2cache:6379/0"),
        case("amqp://guest:@\2mq/vhost"),
        case("mongodb+srv://me:@\2cluster0.x.mongodb.net/app?w=majority"),
        case("postgres://app:@\2db/prod", "p\2ss!w0rd"),
        case("mysql://admin:@\2localhost/app", "postgres"),
        case("https://oauth2:@\2gitlab.com/a/b.git", mixed(_WORD, 20)),
        case("smtp://me%40x.org:@\2mail:587"),
        case("Server=db;Database=app;User Id=sa;Password=@;Encrypt=true"),
        case("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=@;EndpointSuffix=core.windows.net", mixed(_B64, 86) + "=="),
        case("Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=@", mixed(_B64, 43) + "="),
        case("host=db user=app password=@ dbname=x"),
        case("jdbc:postgresql://db/app?user=me&password=@"),
        # SQL and servers.
        case("ALTER USER app WITH PASSWORD '@'"),
        case("CREATE USER app IDENTIFIED BY '@'"),
        case("UPDATE settings SET api_token = '@' WHERE id = 1", of(_HEX, 40)),
        case("requirepass @"),
        case("machine host login me password @"),
        case("db.example.net:5432:app:me:@"),
        case("//npm.pkg/:_auth=@", "YWRtaW46aHVudGVyMg=="),
    ]  # fmt: skip


def _keys() -> list[Case]:
    cases: list[Case] = []
    for kind in ("RSA", "EC", "OPENSSH", "", "DSA"):
        text, body = _pem(kind)
        cases.append(Case(f"before\n{text}\nafter", body))
    text, body = _pem("")
    cases.append(Case('{"private_key": "' + text.replace("\n", "\\n") + '\\n"}', body))
    text, body = _pem("RSA")
    cases.append(Case("\n".join(f"+{line}" for line in text.splitlines()), body))
    cases.append(Case("\n".join(text.splitlines()[2:]), body[1:]))
    cases.append(Case("\n".join(text.splitlines()[:-1]), body))
    cases.append(Case("key: |\n" + "\n".join(f"    {line}" for line in text.splitlines()), body))
    text, body = _pem("PGP", 5)
    cases.append(Case(text.replace("PRIVATE KEY-", "PRIVATE KEY BLOCK-"), body))
    body = tuple(of(_B64, 64) for _ in range(3))
    cases.append(
        Case(
            "PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 3\n" + "\n".join(body) + "\nPrivate-MAC: 1", body
        )
    )
    return cases


def _ready(case: Case) -> Case:
    return Case(case.text.replace("\2", "@"), tuple(one.replace("\2", "@") for one in case.secrets))


SHAPES: tuple[Case, ...] = tuple(_ready(case) for case in (*_tokens(), *_named(), *_keys()))

LOOK_ALIKES: tuple[str, ...] = (
    # Numbers that only name something.
    f"commit {of(_HEX, 40)}",
    f"index {of(_HEX, 7)}..{of(_HEX, 7)} 100644",
    f"sha256:{of(_HEX, 64)}",
    f"image: registry/app@sha256:{of(_HEX, 64)}",
    f"id: {_uuid()}",
    f'"hash": "{of(_HEX, 64)}"',
    f'"integrity": "sha512-{of(_B64, 86)}=="',
    f"md5 {of(_HEX, 32)}",
    f"ETag: \"{of(_HEX, 32)}\"",
    f"layer {of(_HEX, 12)}",
    f"trace {of(_HEX, 32)} span {of(_HEX, 16)}",
    f"arn:aws:iam::123456789012:role/{of(_LOWER, 12)}",
    f"checksum = \"{of(_HEX, 64)}\"",
    f"h1:{of(_B64, 43)}=",
    f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5{of(_B64, 48)} me@host",
    f"ssh-rsa AAAAB3NzaC1yc2E{of(_B64, 300)} me@host",
    f"-----BEGIN PUBLIC KEY-----\n{of(_B64, 64)}\n{of(_B64, 64)}\n-----END PUBLIC KEY-----",
    f"-----BEGIN CERTIFICATE-----\n{of(_B64, 64)}\n{of(_B64, 64)}\n-----END CERTIFICATE-----",
    f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{of(_B64, 64)}\n-----END ENCRYPTED PRIVATE KEY-----",
    f"data:image/png;base64,{of(_B64, 120)}",
    f"pk_live_{of(_WORD, 24)}",
    f"https://{of(_HEX, 32)}@o1.ingest.sentry.io/1",
    "AKIAIOSFODNN7EXAMPLE",
    "2026-11-19T23:41:37.123456Z",
    "+1 555 0100 200",
    # Names, references and placeholders.
    'password = "${DB_PASSWORD}"', "password: ${DB_PASSWORD:-}", "password: <secret>", "password = xxxxxxxxxxxx",
    "password: ************", 'api_key = "your-api-key-here"', "password: {{ vault_password }}",
    "token = os.environ['TOKEN']", 'token = os.environ["GITHUB_TOKEN_9"]', "password = get_password(user1)",
    "def login(password: str) -> None:", "password_file: /run/secrets/db1_Password", "password: /run/secrets/db1",
    "secret: op://vault/Item1/field", "max_tokens: 4096", "token: 123456789", "secretName: my-tls-secret",
    "password: changeme", "password:", "  - name: password", "url: postgres://app:${PASSWORD}@db/app",
    "url: http://localhost:8080/a@b", "self.token = response.json.Token1", "# the password is asked for at start",
    '{"password": null}', '{"password": true}', '"password": "Password",', "password: string", "password=password",
    "password: *shared", "password: DB_PASSWORD", "password: env:DB_PASSWORD", "password: `pass show db1`",
    "PASSWORD=$1", "PASSWORD=%PASSWORD%", "password: !vault |", "token: my-service-token-v2", "secret: app-tls-01",
    "credentials: 'same-origin'", "token: required", '"token": "comment",', "bypass: always", "compass: north",
    "password: '****'", "PASSWORD=<your password>", "tokenizer: cl100k_base", "keyboard: us", "monkey: 4 bananas",
    "passenger: Anna", "passed: 12, failed: 0", "primary key: id", "foreign key (user_id)", "sort_key = created_at",
    'key: "ctrl+shift+p"', "--token-file /etc/token", "curl -u user https://host", "mysql -u root -p app",
    "mysql --protocol=tcp app", "ssh -p 2222 host", "docker run -p 8080:80 nginx", "git push -u origin main",
    "Authorization: required", "authorization requires approval", "Bearer of bad news", "basic usage",
    "Cookie: none", "cookies are asked for", "http://example.org/a?b=c&page=2", "https://host:8443/path",
    "git@github.com:acme/app.git", "postgresql:///app", "redis://localhost:6379/0", "file:///home/me/token.txt",
    "Wrote 3 files in 12 ms", "hint: `takeback undo k3f9a2bq` takes it back.", "sk-learn", "task-force-alpha-tango",
    "risk-assessment-of-the-whole-project", "s3://bucket/key-name", "npm_config_cache=/tmp/npm", "hf_hub_download",
    "cargo build --release", "key-value", "re_compile", "SKIP_THE_LONG_TESTS_IN_CI=1", "eyJ is how a header begins",
)  # fmt: skip
