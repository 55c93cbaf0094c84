"""The client's protocol logic without I/O: what to send, and when and where to reconnect.

`machine.ClientCore` is the state machine; the Trio driver in `mdserver.client` and the simulator
run the same class. No module here has a clock, a socket or a source of randomness of its own: time
and randomness are arguments, so that a run can be repeated exactly.
"""
