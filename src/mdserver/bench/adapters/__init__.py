"""How clients of other servers speak, so that the same load measures them (docs/bench.md).

An adapter is an `Encoding` whose codec turns the commands of a measurement into what the other
server understands, and what that sends into our events. Other servers give messages no position,
so the number at the start of a message's content stands for it.
"""
