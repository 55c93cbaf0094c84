"""Cars that tell Kafka how fast they are and where, and do what a topic tells them.

    python docs/examples/vehicles_kafka.py 127.0.0.1:9092

It is a producer and a consumer like any other: nothing here knows of mdserver. Twice a second each
car writes records to the topic `vehicles`: `car66/speed` has `87`, `car66/position` has
`64.1466,-21.9426`. Records of the topic `commands` have the car as their key: after `stop` it
stands, and says so once as `car66/stopped`; after `go` it drives on. Ctrl-C ends it.
"""

import math
import signal
import sys
import time
from typing import NoReturn

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

CARS = [f"car{number}" for number in range(61, 69)]
TOPICS = ("vehicles", "commands")
CENTRE = 64.1466, -21.9426
RADIUS_DEGREES = 0.02
LAP_KM = 14.0
PERIOD_S = 40.0  # in which a car speeds up and slows down again
TELL_EVERY_S = 0.5
ANSWER_TIMEOUT_S = 5.0


class Car:
    """A car on the ring road; it keeps to the limit of 90 for most of the time."""

    def __init__(self, number: int) -> None:
        self._phase = number / len(CARS)
        self._km = LAP_KM * self._phase
        self._told = True
        self.stands = False

    def drive(self, now_s: float, passed_s: float) -> dict[str, str]:
        """Drive on; return what the car tells: the rest of the key, and the value."""
        wave = math.sin(2 * math.pi * (now_s / PERIOD_S + self._phase))
        speed = 0 if self.stands else round(75 + 20 * wave)
        self._km += speed * passed_s / 3600
        angle = 2 * math.pi * self._km / LAP_KM
        lat = CENTRE[0] + RADIUS_DEGREES * math.sin(angle)
        lon = CENTRE[1] + 2 * RADIUS_DEGREES * math.cos(angle)
        told = {"speed": str(speed), "position": f"{lat:.4f},{lon:.4f}"}
        if self.stands and not self._told:
            told["stopped"] = told["position"]
        self._told = True
        return told

    def obey(self, command: str) -> bool:
        """Do what a command says; return False if the car does not know it."""
        if command not in ("stop", "go"):
            return False
        self._told = self.stands
        self.stands = command == "stop"
        return True


def give_up(reason: object) -> NoReturn:
    """End with one sentence."""
    sys.exit(f"vehicles_kafka.py: {reason}")


def check(consumer: Consumer, servers: str) -> None:
    """End unless a broker answers and has the topics."""
    try:
        there = consumer.list_topics(timeout=ANSWER_TIMEOUT_S).topics
    except KafkaException as error:
        give_up(f"no Kafka answers at {servers}: is the broker running? ({error.args[0].str()})")
    for topic in TOPICS:
        if topic not in there:
            give_up(f"Kafka at {servers} has no topic {topic}: create it first")


def reported(error: KafkaError | None, record: Message) -> None:
    """End if Kafka did not take a record."""
    if error is not None:
        give_up(f"a record of {record.topic()} was not written: {error.str()}")


def main() -> None:
    """Drive, tell, and obey, until Ctrl-C."""
    if len(sys.argv) != 2:
        give_up("give the broker, such as 127.0.0.1:9092")
    servers = sys.argv[1]
    quiet = {"bootstrap.servers": servers, "log_level": 0}
    # What comes later counts: no offsets are kept, and a group of one that nobody else is in.
    consumer = Consumer({**quiet, "group.id": f"cars-{time.time_ns()}"})
    check(consumer, servers)
    consumer.subscribe(["commands"])
    # Java's way to choose partitions, which is also that of mdserver: docs/kafka.md, "Mapping".
    producer = Producer({**quiet, "partitioner": "murmur2_random"})
    cars = {name: Car(number) for number, name in enumerate(CARS)}
    before_s = time.monotonic()
    print(f"{len(cars)} cars drive", flush=True)
    while True:
        now_s = time.monotonic()
        for name, car in cars.items():
            for what, value in car.drive(now_s, now_s - before_s).items():
                producer.produce("vehicles", value, f"{name}/{what}", on_delivery=reported)
        before_s = now_s
        producer.poll(0)
        while (left_s := now_s + TELL_EVERY_S - time.monotonic()) > 0:
            command = consumer.poll(left_s)
            if command is None or command.error():
                continue
            name, text = (
                (each or b"").decode(errors="replace") for each in (command.key(), command.value())
            )
            if name in cars and cars[name].obey(text):
                print(f"{name}: {text}", flush=True)


if __name__ == "__main__":
    for ending in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(ending, signal.SIG_DFL)  # ends without a traceback, as other programs do
    main()
