"""The client's protocol logic without I/O: what to send, when to reconnect and where.

`machine.ClientCore` is the state machine; the Trio driver in `mdserver.client` and the simulator
run the same class. No module here knows a clock, a socket or a source of randomness of its own.
"""
