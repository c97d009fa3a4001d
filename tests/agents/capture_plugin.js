// What capture.py is for the other agents: hands every event to a command, and throws what it says before a call.
import { spawnSync } from "node:child_process"

const command = "COMMAND"
const events = "EVENTS"

const hand = (event, payload) => {
  if (!events.includes(event)) return
  const [program, ...words] = command
  const input = JSON.stringify(payload)
  const done = spawnSync(program, [...words, event], { input, encoding: "utf8" })
  if (done.error) throw done.error
  if (done.status !== 0) throw new Error(done.stderr || `exit ${done.status}`)
}

export const Rig = async ({ directory, worktree }) => {
  const about = { directory, worktree, pid: process.pid }
  return {
    event: async ({ event }) => {
      if (["session.created", "session.idle"].includes(event.type)) hand(event.type, { ...about, event })
    },
    "chat.message": async (input, output) => hand("chat.message", { ...about, input, output }),
    "tool.execute.before": async (input, output) => hand("tool.execute.before", { ...about, input, output }),
    "tool.execute.after": async (input, output) => hand("tool.execute.after", { ...about, input, output }),
  }
}
