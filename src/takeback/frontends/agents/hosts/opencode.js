// takeback for opencode: every prompt is a point to come back to, and every call can be taken back.
// Written by `takeback hook install opencode`; `takeback hook uninstall opencode` switches takeback off.
import { spawn } from "node:child_process"

const SHIM = ["TAKEBACK"]
const STORE = "STORE"
const OFF = "`takeback hook uninstall opencode` switches takeback off."
const BEFORE = 300_000
const OTHERWISE = 60_000
// They change nothing, and there are many of them.
const READS = new Set(["read", "glob", "grep", "list", "todowrite", "todoread", "webfetch", "websearch"])

// One process for each event. It reads the payload to its end and prints one answer.
const ask = (payload, limit) =>
  new Promise((done) => {
    const env = STORE ? { ...process.env, TAKEBACK_STORE: STORE } : process.env
    const child = spawn(SHIM[0], [...SHIM.slice(1), payload.hook_event_name], { env, stdio: "pipe" })
    const said = { stdout: "", stderr: "" }
    const timer = setTimeout(() => {
      said.stderr += "takeback did not answer in time."
      child.kill("SIGKILL")
    }, limit)
    const end = (exit) => {
      clearTimeout(timer)
      done({ ...said, exit })
    }
    child.on("error", (error) => {
      said.stderr += String(error)
      end(127)
    })
    for (const name of ["stdout", "stderr"]) child[name].on("data", (data) => (said[name] += data))
    child.on("close", (exit) => end(exit ?? 1))
    child.stdin.on("error", () => {})
    child.stdin.end(JSON.stringify(payload))
  })

const refuse = (answer) => {
  const why = answer.stderr.trim() || "takeback is missing or broken, so this call did not run."
  throw new Error(why.includes(OFF) ? why : `${why}\n${OFF}`)
}

const told = (answer) => {
  if (answer.exit !== 0 || !answer.stdout.trim()) return {}
  try {
    return JSON.parse(answer.stdout)
  } catch {
    return {}
  }
}

export const Takeback = async ({ client, directory, worktree }) => {
  const project = worktree && worktree !== "/" ? worktree : directory
  const parents = new Map()
  const roles = new Map()

  // A subagent is a session of its own, below the one that the person sees.
  const parent = async (id) => {
    if (!parents.has(id)) {
      const found = await client.session.get({ path: { id } }).catch(() => undefined)
      parents.set(id, found?.data?.parentID ?? "")
    }
    return parents.get(id)
  }
  const place = async (id) => {
    let root = id
    for (let above = await parent(root), n = 0; above && n < 20; above = await parent(root), n++) root = above
    return { session_id: root, member: root === id ? "" : id, role: root === id ? "" : (roles.get(id) ?? "") }
  }
  const say = async (event, id, more = {}) =>
    ask(
      {
        hook_event_name: event,
        ...(await place(id)),
        project,
        cwd: directory,
        pid: process.pid,
        ...more,
      },
      event === "tool.execute.before" ? BEFORE : OTHERWISE,
    )

  return {
    "chat.message": async (input, output) => {
      const parts = output?.parts ?? []
      const prompt = parts.flatMap((part) => (part.type === "text" && !part.synthetic ? [part.text] : [])).join("\n")
      const where = await place(input.sessionID)
      if (where.member) return
      const answer = await say("chat.message", input.sessionID, { prompt, turn: output?.message?.id ?? "" })
      // Python itself ends with 2 if the shim is gone: that stops no prompt.
      if (answer.exit === 2 && answer.stderr.includes(OFF)) refuse(answer)
      const { context } = told(answer)
      const last = parts.findLast((part) => part.type === "text")
      if (context && last) last.text += `\n\n${context}`
    },
    "tool.execute.before": async (input, output) => {
      if (READS.has(input.tool)) return
      const answer = await say("tool.execute.before", input.sessionID, {
        tool_name: input.tool,
        tool_input: output?.args ?? {},
        tool_use_id: input.callID,
      })
      if (answer.exit !== 0) refuse(answer)
    },
    "tool.execute.after": async (input, output) => {
      if (READS.has(input.tool)) return
      const exit = output?.metadata?.exit
      const answer = await say("tool.execute.after", input.sessionID, {
        tool_name: input.tool,
        tool_input: input.args ?? {},
        tool_use_id: input.callID,
        failed: typeof exit === "number" && exit !== 0,
      })
      const { context } = told(answer)
      if (context && typeof output?.output === "string") output.output += `\n\n${context}`
    },
    event: async ({ event }) => {
      const info = event?.properties?.info
      if (event?.type === "session.created" && info?.id) {
        parents.set(info.id, info.parentID ?? "")
        roles.set(info.id, info.agent ?? "")
        await say(info.parentID ? "subagent.start" : "session.start", info.id, { source: "startup" })
      } else if (event?.type === "session.deleted" && info?.id) {
        await say(info.parentID ? "subagent.end" : "session.deleted", info.id, { source: "deleted" })
      } else if (event?.type === "session.idle" && event.properties.sessionID) {
        const id = event.properties.sessionID
        await say((await parent(id)) ? "subagent.end" : "session.idle", id)
      }
    },
  }
}
