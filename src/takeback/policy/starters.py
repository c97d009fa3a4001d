"""Policies to begin with: `takeback policy new NAME`."""

_HEAD = """# takeback policy: {title}. `takeback policy check` looks at it, `takeback policy test` runs its cases.
# The strictest rule that matches decides, so the order of rules does not matter.
"""

LAPTOP = (
    _HEAD.format(title="a laptop")
    + """
[labels]
secret = [".env", "*.pem", "~/.ssh", "~/.gnupg", "~/.aws"]

[[rule]]
name = "secrets stay as they are"
match = {label = "secret"}
then = "ask"
why = "Keys and passwords are changed by a person."

[[rule]]
name = "no force push"
match = {command = ["git push * --force", "git push * -f", "git push * --force-with-lease"]}
then = "deny"
why = "Others may have pulled what it would overwrite."

[[rule]]
name = "large changes wait"
match = {files_over = 200}
then = "hold"
why = "So many files are looked at first: takeback diff ID."

[[budget]]
name = "deletes"
match = {kind = "delete"}
most = 30
per = "1m"
why = "An agent that deletes this much is lost."

[[case]]
given = {command = "git push --force origin main"}
then = "deny"
rule = "no force push"

[[case]]
given = {kind = "write", path = "src/app.py", files = 1}
then = "allow"
"""
)

CI = (
    _HEAD.format(title="continuous integration, where no person can be asked")
    + """
[[rule]]
name = "commands run in a sandbox"
match = {kind = "command"}
place = "sandbox"

[[rule]]
name = "the pipeline is not changed by the pipeline"
match = {path = [".github", ".gitlab-ci.yml", "Jenkinsfile", "takeback.toml"]}
then = "deny"
why = "A change of the pipeline is a commit that someone reviews."

[[rule]]
name = "what cannot be undone is not done here"
match = {reversibility = ["irreversible", "by hand"]}
then = "deny"
why = "There is no person to approve it."

[[case]]
given = {kind = "write", path = ".github/workflows/test.yml"}
then = "deny"

[[case]]
given = {command = "make test"}
then = "allow"
"""
)

PRODUCTION = (
    _HEAD.format(title="production; for /etc/takeback/config.toml")
    + """
[labels]
production = ["/etc", "/srv", "postgresql://*prod*/**", "mariadb://*prod*/**"]

[[rule]]
name = "small and reversible"
match = {label = "production", reversibility = "exact", files_up_to = 3, bytes_up_to = "1 MB"}
then = "allow"

[[rule]]
name = "production is held"
match = {label = "production", files_over = 3}
then = "hold"
why = "A person looks at it first."

[[rule]]
name = "schema and mass changes"
match = {verb = ["drop", "truncate", "alter", "grant", "revoke"]}
then = "ask"
asks = {people = 2, within = "4h", challenge = true}
why = "Two people approve a change of the schema or of rights."

[[rule]]
name = "many rows"
match = {rows_over = 1000}
then = "ask"
asks = {within = "1h"}

[[rule]]
name = "not at night"
match = {label = "production", hours = "20:00-07:00"}
then = "deny"
why = "At night there is no one to help."

[[rule]]
name = "what cannot be undone"
match = {reversibility = "irreversible"}
then = "ask"
asks = {people = 2, within = "4h", challenge = true}

[[budget]]
name = "changes"
most = 60
per = "1m"
why = "An agent in a loop is stopped."

[[case]]
given = {statement = "DROP TABLE users"}
then = "ask"
rule = "schema and mass changes"

[[case]]
given = {kind = "write", path = "/etc/hosts", files = 1, bytes = 200, reversibility = "exact", at = "mon 10:00"}
then = "allow"

[[case]]
given = {kind = "write", path = "/etc/hosts", at = "mon 23:00"}
then = "deny"
rule = "not at night"
"""
)

STARTERS = {"laptop": LAPTOP, "ci": CI, "production": PRODUCTION}
