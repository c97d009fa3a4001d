"""What secrets look like: one set of rules for the check, for every view and for what leaves the store.

A rule is tried only where one of its `signs` occurs, so a text without any costs a few searches and compiles nothing.
No pattern can run over the same text twice: what precedes a secret is bounded, and its own characters end before
another one could begin.
"""

import re
from functools import cache
from typing import NamedTuple


class Shape(NamedTuple):
    kind: str  # for a person
    signs: tuple[str, ...]  # the text holds one of these, or nothing is found
    pattern: str  # its group `v` is what is masked; without one all that follows the first sign
    sure: bool = True  # false: masked, and no reason to refuse a change
    around: bool = False  # its value is looked at as well
    mixed: bool = False  # a short value counts only if it mixes kinds of characters


class SecretPlace(NamedTuple):
    start: int
    end: int
    kind: str  # for a person; never the secret itself
    sure: bool = True  # enough to refuse a change
    shown: int = 0  # characters at its start that say only what it is


_APART = r"(?<![A-Za-z0-9])"  # the sign is short enough to occur inside of a word
_OPENS = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"

TOKENS: tuple[Shape, ...] = (
    Shape("an AWS access key", ("AKIA", "ASIA", "ABIA", "ACCA"), r"(?<![A-Z0-9])(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}(?![0-9A-Z])"),
    Shape("an Amazon Bedrock key", ("ABSK",), r"ABSK[A-Za-z0-9+/]{100,}={0,2}"),
    Shape("a GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{36,}"),
    Shape("a GitHub token", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{30,}"),
    Shape(
        "a GitLab token",
        ("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glft-", "glsoat-", "glimt-", "glagent-", "gloas-"),
        r"gl(?:pat|dt|rt|ptt|cbt|ft|soat|imt|agent|oas)-[A-Za-z0-9_.-]{20,}",
    ),
    Shape("a Slack token", ("xoxa-", "xoxb-", "xoxe", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xoxc-", "xoxd-"), r"xox[abcdeoprs](?:\.xox[bp])?-[A-Za-z0-9%-]{10,}"),
    Shape("a Slack token", ("xapp-",), r"xapp-\d-[A-Za-z0-9-]{20,}"),
    Shape("a Slack token", ("hooks.slack.com/",), r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<v>[A-Za-z0-9/]{30,})"),
    Shape("a Discord webhook", ("/api/webhooks/",), r"discord(?:app)?\.com/api/webhooks/\d{6,}/(?P<v>[A-Za-z0-9_-]{40,})"),
    Shape("a Teams webhook", ("webhook.office.com/",), r"webhook\.office\.com/webhookb2/(?P<v>[A-Za-z0-9@/-]{60,})"),
    Shape("a Telegram token", (":AA",), r"(?<![A-Za-z0-9])\d{8,10}:(?P<v>AA[A-Za-z0-9_-]{33})(?![A-Za-z0-9_-])"),
    Shape("a Stripe key", ("sk_live_", "rk_live_"), r"[rs]k_live_[A-Za-z0-9]{16,}"),
    Shape("a Stripe key", ("whsec_",), r"whsec_[A-Za-z0-9+/=]{24,}"),
    Shape("a Stripe test key", ("sk_test_", "rk_test_"), r"[rs]k_test_[A-Za-z0-9]{16,}", sure=False),
    Shape("an Anthropic key", ("sk-ant-",), r"sk-ant-[A-Za-z0-9_-]{20,}"),
    Shape("an OpenRouter key", ("sk-or-",), r"sk-or-v1-[0-9a-f]{64}"),
    Shape("a Langfuse key", ("sk-lf-",), r"sk-lf-[0-9a-f-]{36}"),
    Shape("an OpenAI key", ("sk-",), _OPENS + r"sk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}"),
    Shape("a Google key", ("AIza",), r"AIza[A-Za-z0-9_-]{35}"),
    Shape("a Google client secret", ("GOCSPX-",), r"GOCSPX-[A-Za-z0-9_-]{28}"),
    Shape("a Google token", ("ya29.",), r"ya29\.[A-Za-z0-9_-]{20,}"),
    Shape("a Google refresh token", ("1//0",), r"1//0[A-Za-z0-9_-]{30,}"),
    Shape("an Azure client secret", ("Q~",), _OPENS + r"[A-Za-z0-9_.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}"),
    Shape("a Hugging Face token", ("hf_", "api_org_"), _APART + r"(?:hf|api_org)_[A-Za-z]{34}"),
    Shape("a Replicate token", ("r8_",), _APART + r"r8_[A-Za-z0-9]{37}"),
    Shape("a Groq key", ("gsk_",), _APART + r"gsk_[A-Za-z0-9]{48,}"),
    Shape("a Perplexity key", ("pplx-",), r"pplx-[A-Za-z0-9]{40,}"),
    Shape("an xAI key", ("xai-",), _APART + r"xai-[A-Za-z0-9]{60,}"),
    Shape("a Pinecone key", ("pcsk_",), r"pcsk_[A-Za-z0-9_]{40,}"),
    Shape("a LangSmith key", ("lsv2_",), r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    Shape("an npm token", ("npm_",), r"npm_[A-Za-z0-9]{36}"),
    Shape("a PyPI token", ("pypi-AgE",), r"pypi-AgE[A-Za-z0-9_-]{50,}"),
    Shape("a RubyGems key", ("rubygems_",), r"rubygems_[0-9a-f]{48}"),
    Shape("a crates.io token", ("cio",), _APART + r"cio[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    Shape("a NuGet key", ("oy2",), _APART + r"oy2[a-z0-9]{43}(?![a-z0-9])"),
    Shape("a Clojars token", ("CLOJARS_",), r"CLOJARS_[a-z0-9]{60}"),
    Shape("a Docker token", ("dckr_",), r"dckr_[po]at_[A-Za-z0-9_-]{27,}"),
    Shape("a DigitalOcean token", ("dop_v1_", "doo_v1_", "dor_v1_"), r"do[por]_v1_[0-9a-f]{64}"),
    Shape("a Heroku key", ("HRKU-",), r"HRKU-[A-Za-z0-9_-]{36,}"),
    Shape("a Fly.io token", ("fm2_", "fo1_"), _APART + r"f(?:m2|o1)_[A-Za-z0-9+/=_-]{40,}"),
    Shape("a Netlify token", ("nfp_",), _APART + r"nfp_[A-Za-z0-9]{36}"),
    Shape("a Supabase key", ("sbp_", "sb_secret_"), _APART + r"(?:sbp_[0-9a-f]{40}|sb_secret_[A-Za-z0-9_-]{20,})"),
    Shape("a PlanetScale password", ("pscale_",), r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{32,}"),
    Shape("a Neon key", ("napi_",), _APART + r"napi_[a-z0-9]{64}"),
    Shape("a Databricks token", ("dapi",), _APART + r"dapi[0-9a-f]{32}(?:-\d)?(?![0-9a-f])"),
    Shape("a Terraform token", (".atlasv1.",), r"(?P<v>[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70})"),
    Shape("a Vault token", ("hvs.", "hvb.", "hvr."), _APART + r"hv[sbr]\.[A-Za-z0-9_-]{24,}"),
    Shape("a Pulumi token", ("pul-",), _APART + r"pul-[0-9a-f]{40}"),
    Shape("a Doppler token", ("dp.",), _APART + r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    Shape("a 1Password token", ("ops_eyJ",), r"ops_eyJ[A-Za-z0-9+/=_-]{100,}"),
    Shape("an age key", ("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    Shape("a Linear key", ("lin_api_", "lin_oauth_"), r"lin_(?:api|oauth)_[A-Za-z0-9]{40,}"),
    Shape("a Notion token", ("ntn_", "secret_"), _APART + r"(?:ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43}(?![A-Za-z0-9]))"),
    Shape("a Figma token", ("figd_", "figo_"), r"fig[do]_[A-Za-z0-9_-]{40,}"),
    Shape("an Airtable token", ("pat",), _APART + r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    Shape("an Atlassian token", ("ATATT3x", "ATCTT3x", "ATBB"), r"AT(?:ATT3x|CTT3x|BB)[A-Za-z0-9_=-]{28,}"),
    Shape("a New Relic key", ("NRAK-", "NRII-", "NRAL"), r"NR(?:AK|II|AL)-?[A-Za-z0-9_-]{27,}"),
    Shape("a Grafana token", ("glsa_", "glc_"), _APART + r"gl(?:sa_[A-Za-z0-9]{32}_[0-9a-f]{8}|c_[A-Za-z0-9+/=]{32,})"),
    Shape("a Sentry token", ("sntrys_", "sntryu_"), r"sntry(?:s_eyJ[A-Za-z0-9+/=_]{60,}|u_[0-9a-f]{64})"),
    Shape("a PostHog key", ("phx_",), _APART + r"phx_[A-Za-z0-9]{40,}"),
    Shape("a Dynatrace token", ("dt0c01.", "dt0s16."), r"dt0[cs]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    Shape("a Honeycomb key", ("hcaik_",), r"hcai[kc]_[a-z0-9]{58,}"),
    Shape("a CircleCI token", ("CCIPAT_",), r"CCIPAT_[A-Za-z0-9]{22}_[0-9a-f]{40}"),
    Shape("a Buildkite token", ("bkua_",), r"bkua_[0-9a-f]{40}"),
    Shape("an Artifactory key", ("AKCp",), r"AKCp[A-Za-z0-9]{60,}"),
    Shape("a Sourcegraph token", ("sgp_",), _APART + r"sgp_(?:[0-9a-f]{16}_)?[0-9a-f]{40}"),
    Shape("a SonarQube token", ("squ_", "sqp_", "sqa_"), _APART + r"sq[upa]_[0-9a-f]{40}"),
    Shape("a Postman key", ("PMAK-",), r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    Shape("a Contentful token", ("CFPAT-",), r"CFPAT-[A-Za-z0-9_-]{43}"),
    Shape("a Shopify token", ("shpat_", "shpca_", "shppa_", "shpss_"), r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    Shape("a Square token", ("sq0atp-", "sq0csp-"), r"sq0(?:atp|csp)-[A-Za-z0-9_-]{22,}"),
    Shape("a Braintree token", ("access_token$",), r"access_token\$(?:production|sandbox)\$(?P<v>[a-z0-9]{16}\$[0-9a-f]{32})"),
    Shape("a SendGrid key", ("SG.",), _APART + r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    Shape("a Mailgun key", ("key-",), _OPENS + r"key-[0-9a-f]{32}(?![0-9a-f])"),
    Shape("a Mailchimp key", ("-us",), r"(?<![0-9a-f])(?P<v>[0-9a-f]{32}-us\d{1,2})(?!\d)"),
    Shape("a Brevo key", ("xkeysib-",), r"xkeysib-[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    Shape("a Resend key", ("re_",), _OPENS + r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24}(?![A-Za-z0-9])"),
    Shape("a Twilio key", ("SK",), r"(?<![A-Za-z0-9])SK[0-9a-f]{32}(?![0-9a-f])"),
    Shape("a Mapbox token", ("sk.eyJ",), _APART + r"sk\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}"),
    Shape("a Tailscale key", ("tskey-",), r"tskey-[a-z]{2,12}-[A-Za-z0-9]{8,}-[A-Za-z0-9]{20,}"),
    Shape("a Plaid token", ("access-production-", "access-sandbox-"), r"access-(?:production|sandbox)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    Shape("a Razorpay key", ("rzp_live_",), r"rzp_live_[A-Za-z0-9]{14,}"),
    Shape("a Flutterwave key", ("FLWSECK",), r"FLWSECK(?:_TEST)?-[0-9a-fA-F]{12,}(?:-X)?"),
    Shape("a Facebook token", ("EAA",), _APART + r"EAA[A-Za-z0-9]{80,}"),
    Shape("a Twitter token", ("AAAAAAAAAAAAAAAAAAAAA",), r"AAAAAAAAAAAAAAAAAAAAA[A-Za-z0-9%]{60,}"),
    Shape("a Dropbox token", ("sl.",), _OPENS + r"sl\.(?:u\.)?[A-Za-z0-9_-]{100,}"),
    Shape("a Typeform token", ("tfp_",), _APART + r"tfp_[A-Za-z0-9_.=-]{40,}"),
    Shape("a Shippo key", ("shippo_live_",), r"shippo_live_[0-9a-f]{40}"),
    Shape("an EasyPost key", ("EZAK",), r"EZAK[A-Za-z0-9]{54}"),
    Shape("a Prefect key", ("pnu_",), _APART + r"pnu_[A-Za-z0-9]{36}"),
    Shape("an Alibaba key", ("LTAI",), _APART + r"LTAI[A-Za-z0-9]{17,26}(?![A-Za-z0-9])"),
    Shape("a Yandex key", ("AQVN",), _APART + r"AQVN[A-Za-z0-9_-]{35,38}(?![A-Za-z0-9_-])"),
    Shape("a JSON web token", ("eyJ",), _OPENS + r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    Shape("an encrypted web token", ("eyJ",), _OPENS + r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]{12,}\.[A-Za-z0-9_-]{12,}\.[A-Za-z0-9_-]{12,}"),
)  # fmt: skip

# Where only what stands around it tells that it is one; the value is looked at as well.
AROUND: tuple[Shape, ...] = (
    Shape("credentials of a request", ("authorization", "Authorization", "AUTHORIZATION"), r"(?i:authorization)[\"']?\s{0,4}[:=,]\s{0,4}[\"']?(?:[A-Za-z][\w-]{2,20} +)?(?P<v>[^\s\"',;\x00-\x1f]{6,})", False, True, True),
    Shape("credentials of a request", ("earer ", "EARER "), r"(?<![A-Za-z])(?i:bearer) +(?P<v>[A-Za-z0-9._~+/=-]{16,})", False, True, True),
    Shape("credentials of a request", ("asic ",), r"(?<![A-Za-z])[Bb]asic +(?P<v>(?=[A-Za-z+/]*[0-9=])[A-Za-z0-9+/]{8,}={0,2})(?![A-Za-z0-9+/])", False, True, True),
    Shape("a cookie", ("ookie:", "OOKIE:"), r"(?<![A-Za-z-])(?i:cookie): {0,4}(?P<v>[^\s=;\"']{1,64}=[^\r\n\"'\x00-\x1f]{4,})", False, True),
    Shape("a cookie", ("et-cookie:", "et-Cookie:"), r"(?i:set-cookie): {0,4}[^=;\s\"']{1,64}=(?P<v>[^;\s\"'\x00-\x1f]{4,})", False, True),
    Shape("a cookie", ("session", "SESSID", "SESSION", "Session", "connect.sid"), r"(?i:(?<![A-Za-z])(?:php|j|asp\.net_)?sess(?:ion)?_?id|connect\.sid|_gitlab_session)=(?P<v>[A-Za-z0-9%._~+/-]{16,})", False, True),
    Shape("a signed address", ("sig=", "Signature=", "ignature="), r"[?&](?:sig|X-Amz-Signature|X-Goog-Signature|Signature)=(?P<v>[A-Za-z0-9%/+_.~-]{16,}={0,2})", False, True),
    Shape("a password", ("dentified by", "DENTIFIED BY", "dentified BY"), r"(?i:identified)\s{1,4}(?i:by)\s{1,4}(?:(?i:password)\s{1,4})?'(?P<v>[^']{1,256})'", False, True),
    Shape("a password", ("assword '", "ASSWORD '", "assword  '"), r"(?i:(?<![A-Za-z])password)\s{1,4}'(?P<v>[^']{1,256})'", False, True),
    Shape("a password", ("login ",), r"(?<![A-Za-z])login\s{1,4}[^\s]{1,128}\s{1,4}password\s{1,4}(?P<v>[^\s\x00-\x1f]{1,256})", False, True),
    Shape("a password", ("requirepass", "masterauth"), r"(?<![A-Za-z-])(?:requirepass|masterauth)\s{1,4}(?P<v>[^\s\x00-\x1f]{1,256})", False, True),
    Shape("a password", ("sshpass",), r"(?<![A-Za-z])sshpass\s{1,4}-p\s{0,4}[\"']?(?P<v>[^\s\"'\x00-\x1f]{1,256})", False, True),
    Shape("a password", ("mysql", "mariadb"), r"(?<![A-Za-z])(?:mysql|mariadb)[a-z-]{0,12}(?:\s[^\n|;&]{0,200}?)?\s-p(?P<v>[^\s\"'\x00-\x1f]{1,256})", False, True),
    Shape("a password", ("redis-cli",), r"redis-cli(?:\s[^\n|;&]{0,200}?)?\s(?:-a|--pass)\s{1,4}[\"']?(?P<v>[^\s\"'\x00-\x1f]{1,256})", False, True),
    Shape("a password", ("curl", "wget", "http "), r"(?<![A-Za-z])(?:curl|wget|https?)(?:\s[^\n|;&]{0,400}?)?\s(?:-u|--user|--proxy-user|-a|--auth)[ =]{1,2}[\"']?[^\s:\"']{0,128}:(?P<v>[^\s\"'\x00-\x1f]{1,256})", False, True),
    Shape("a password", ("docker login", "podman login", "az login", "helm registry login"), r"(?:docker|podman|az|registry) login(?:\s[^\n|;&]{0,200}?)?\s-p[ =]?[\"']?(?P<v>[^\s\"'\x00-\x1f-][^\s\"'\x00-\x1f]{0,256})", False, True),
    Shape("a password", ("ldap",), r"(?<![A-Za-z])ldap[a-z]{3,8}\s[^\n|;&]{0,300}?\s?-w\s{1,4}[\"']?(?P<v>[^\s\"'\x00-\x1f]{1,256})", False, True),
    Shape("a password", ("htpasswd",), r"htpasswd\s{1,4}-[a-zB]*b[a-zB]*\s{1,4}[^\s]{1,128}\s{1,4}[^\s]{1,64}\s{1,4}[\"']?(?P<v>[^\s\"'\x00-\x1f]{1,256})", False, True),
    Shape("a password", ("pass:",), r"(?<![A-Za-z])-pass(?:in|out)?\s{1,4}[\"']?pass:(?P<v>[^\s\"'\x00-\x1f]{1,256})", False, True),
    Shape("a password", (":*:", ":5432:", ":3306:"), r"(?m)^[+ -]?[^\s:#]{1,128}:(?:\*|\d{2,5}):[^\s:]{1,64}:[^\s:]{1,64}:(?P<v>[^\s\x00-\x1f]{1,256})$", False, True),
    Shape("a registry token", ("_auth",), r"_auth(?:Token)?\s{0,4}=\s{0,4}[\"']?(?P<v>[A-Za-z0-9+/=_-]{8,})", False, True),
)  # fmt: skip
PRIVATE_KEY = "PRIVATE KEY"
PUTTY_KEY = "PuTTY-User-Key"
# Of names whose value is a secret.
HINTS = ("pass", "pwd", "secret", "token", "credential", "key", "signature")
HEADERS = ("authorization", "proxy-authorization", "cookie", "set-cookie")


SIGNS: tuple[tuple[str, Shape], ...] = tuple(
    (sign, shape) for shape in (*TOKENS, *AROUND) for sign in shape.signs
)


@cache
def pattern_of(shape: Shape) -> "re.Pattern[str]":
    return re.compile(shape.pattern)
