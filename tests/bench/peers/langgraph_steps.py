"""LangGraph, as its guide says: a node that comes round again, its saver, each step on the disk before the next."""

from itertools import count
from typing import TypedDict

from answering import Asked, measured
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    value: int
    many: int


asked = Asked()
remote = asked.store.startswith("postgresql://")
graph = StateGraph(State)
graph.add_node("add", lambda state: asked.add(state["value"]))
graph.add_edge(START, "add")
graph.add_conditional_edges("add", lambda state: "add" if state["value"] < state["many"] else END)
with (PostgresSaver if remote else SqliteSaver).from_conn_string(asked.store) as saver:
    saver.setup()
    compiled = graph.compile(checkpointer=saver)
    threads = count()

    def steps(many: int) -> int:
        config = {"configurable": {"thread_id": f"thread-{next(threads)}"}, "recursion_limit": many + 10}
        return compiled.invoke({"value": 0, "many": many}, config, durability="sync")["value"]

    measured(steps)
