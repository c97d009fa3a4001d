#!/bin/sh
# Hands an event of Claude Code to takeback: `takeback.sh EVENT`, payload on stdin. No path is fixed: takeback is found
# when a session starts, and noted for its calls. Before a call anything but a clean end denies it.
event=$1
note=${CLAUDE_PLUGIN_DATA:+$CLAUDE_PLUGIN_DATA/shim}

lost() {
  cat >/dev/null
  [ "$event" = PreToolUse ] || exit 0
  echo "$1, so this call did not run. Switch it off: claude plugin disable takeback@takeback" >&2
  exit 2
}

known() {
  python= shim=
  [ -n "$note" ] && [ -f "$note" ] && { read -r python && read -r shim; } <"$note"
  [ -x "$python" ] && [ -f "$shim" ]
}

look() {
  program=$(command -v takeback) || program=$HOME/.local/bin/takeback
  found=$("$program" hook shim 2>/dev/null </dev/null) || return 1
  python=${found%%
*} shim=${found#*
}
  [ -x "$python" ] && [ -f "$shim" ] || return 1
  if [ -n "$note" ]; then
    { mkdir -p "${note%/*}" && printf '%s\n' "$found" >"$note.$$" && mv -f "$note.$$" "$note"; } 2>/dev/null
  fi
  return 0
}

if [ "$event" = SessionStart ]; then look; else known || look; fi || lost "takeback is not installed, or it is broken"
# The compiled one lies beside it, where there is one. What it cannot answer it hands over to the command that follows.
compiled=${shim%.py}
[ -f "$compiled" ] && [ -x "$compiled" ] || compiled=
${compiled:+"$compiled"} "$python" -I -S "$shim" claude-code "$event" && exit 0
status=$?
cat >/dev/null
[ "$event" = PreToolUse ] || exit 0
[ $status -eq 2 ] && exit 2
lost "takeback broke off"
