# SPDX-License-Identifier: Apache-2.0
"""A lab that is up in virtual time: a folder with the guest's cell folder, the keeper's socket and a lock.

The keeper holds the lock as long as it lives, so whatever kills it, a lock that can be taken says that the session is
stale; its guest died with it.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from qbed.base.errors import nearest
from qbed.base.json_files import read_json
from qbed.plan.model import LinkChange, LinkEvent, Plan
from qbed.substrates import Job, Limits, Pace, Samples, SessionError, Status, Terminal, check_name_free_elsewhere
from qbed.substrates.command_line import VIRTUAL_EPOCH_NS
from qbed.substrates.kernels import toolchain_of
from qbed.substrates.lines import Message
from qbed.substrates.sessions import (
    LineConnection,
    change_message,
    command,
    connect,
    input_message,
    resize_message,
    state_folder,
)
from qbed.substrates.toolchain import Toolchain
from qbed.substrates.user_modules import TC, tc_plugins
from qbed.substrates.virtual import NAME
from qbed.substrates.virtual.confinement import SYSTEM
from qbed.substrates.virtual.divided import OUT, PARTS, part_folder
from qbed.substrates.virtual.provision import TC_PATH, shared_folders

SOCKET, LOCK, LOG, CELL = "keeper.sock", "keeper.lock", "keeper.log", "cell"
LAB, SEES, LIMITS = "lab", "sees.json", "limits.json"
UP_S, DOWN_S = 120.0, 20.0
EPOCH_US = "QBED_EPOCH_US"
"""The environment variable of a program at a terminal with the lab's epoch."""


def samples(folder: Path, plan: Plan) -> Samples:
    """The samples of the guest in `folder`."""
    clock = {"event": "clock", "lab": plan.lab, "unit": "ns since the lab's epoch", "substrate": NAME}
    return Samples(clock | {"dilation": 1, "error_ns": 0}, sample_folders(folder, plan))


def sample_folders(folder: Path, plan: Plan) -> list[Path]:
    """The folders with samples: that of the only guest, or those of all parts while they run."""
    merged, parts = folder / OUT, folder / PARTS
    if (merged / "done.json").exists() or not parts.exists():
        return [merged]
    return [part_folder(folder, part) / OUT for part in range(plan.part_count)]


@dataclass(frozen=True)
class Session:
    """A lab's session, up or not: a `qbed.substrates.Deployment`."""

    name: str
    home: Path
    substrate: str = NAME

    @property
    def file(self) -> str:
        return (self.home / LAB).read_text()

    @property
    def folder(self) -> Path:
        return self.home / CELL

    def is_up(self) -> bool:
        """Whether a keeper lives."""
        try:
            with (self.home / LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def clean(self) -> None:
        """Remove what a dead keeper left behind."""
        shutil.rmtree(self.home, ignore_errors=True)

    @contextmanager
    def _connect(self) -> Iterator[LineConnection]:
        """Connect to the keeper."""
        if not self.is_up():
            raise SessionError(f"the lab {self.name} is not up; `qbed up` brings it up, `qbed ps` lists what is up")
        try:
            connection = connect(self.home, SOCKET)
        except OSError as error:
            raise SessionError(f"the keeper of {self.name} does not answer: {error.strerror}") from error
        with LineConnection(connection) as conversation:
            yield conversation

    @contextmanager
    def exec(
        self,
        node: str,
        argv: list[str],
        *,
        background: bool,
        stdin: bytes = b"",
        terminal: Terminal | None = None,
        listens: bool = False,
    ) -> Iterator[_Execution]:
        self._check_node(node)
        self._check_visible(argv[0])
        given: Message = {"stdin": base64.b64encode(stdin).decode()} if stdin else {}
        if listens:
            given["listens"] = True
        with self._connect() as conversation:
            message = command("background" if background else "exec", node, argv, terminal) | given
            if (self.folder / TC).is_dir():
                message["env"]["TC_LIB_DIR"] = f"/mnt/{TC}"
            if terminal is not None:
                message["env"][EPOCH_US] = str(self._epoch_us())
            conversation.send(message)
            yield _Execution(conversation)

    def _epoch_us(self) -> int:
        """The guest's wall clock at the lab's epoch."""
        return (VIRTUAL_EPOCH_NS + int(read_json(self.folder / "plan.json")["epoch_ns"])) // 1000

    def workload(self) -> None:
        with self._connect() as conversation:
            conversation.send({"command": "workload"})
            next(answer for answer in conversation.events() if answer.get("event") == "exit")

    def jobs(self) -> list[Job]:
        with self._connect() as conversation:
            conversation.send({"command": "jobs"})
            return [Job(**job) for job in next(conversation.events())["jobs"]]

    def end(self, job: int) -> None:
        with self._connect() as conversation:
            conversation.send({"command": "end", "job": job})
            next(answer for answer in conversation.events() if answer.get("event") == "exit")

    def _check_node(self, node: str) -> None:
        """`SessionError` if the lab has no node of this name."""
        if self.is_up():
            nodes = [node["name"] for node in read_json(self.folder / "plan.json")["nodes"]]
            if node not in nodes:
                raise SessionError(f"the lab {self.name} has no node `{node}`{nearest(node, nodes)}")

    def _check_visible(self, program: str) -> None:
        """Raise `SessionError` if the program exists on this machine but is not readable in the lab."""
        path = Path(program)
        if not path.is_absolute() or not path.exists() or not self.is_up():
            return
        seen = self.seen()
        if not any(folder in path.resolve().parents for folder in (*SYSTEM, self.folder, *seen)):
            what = ", ".join(map(str, seen)) or "nothing"
            raise SessionError(
                f"{program}: besides what is installed in {SYSTEM[0]}, the lab {self.name} sees {what} of this machine;"
                " copy the program there, or `qbed up` the lab in a folder that has it (a whole home is not seen)"
            )

    def seen(self) -> list[Path]:
        """The folders of the machine that the lab was brought up to see."""
        return [Path(path) for path in json.loads((self.home / SEES).read_text())]

    def limits(self) -> Limits:
        """The limits beyond which the keeper takes the lab down."""
        return Limits(**json.loads((self.home / LIMITS).read_text()))

    def advance(self, ns: int) -> int:
        with self._connect() as conversation:
            conversation.send({"command": "advance", "ns": ns})
            return int(next(answer for answer in conversation.events() if answer.get("event") == "exit")["time_ns"])

    def set_pace(self, pace: Pace) -> None:
        with self._connect() as conversation:
            conversation.send({"command": "pace", "pace": pace})
            next(conversation.events())

    def change_links(self, links: list[LinkChange], states: list[LinkEvent]) -> None:
        with self._connect() as conversation:
            conversation.send(change_message(links, states))
            next(answer for answer in conversation.events() if answer.get("event") == "exit")

    def samples(self, plan: Plan) -> Samples:
        return samples(self.folder, plan)

    def status(self) -> Status:
        with self._connect() as conversation:
            conversation.send({"command": "status"})
            status = next(conversation.events())
        runs = "; ".join(status["running"]) or "-"
        return Status(str(status["pid"]), int(status["time_ns"]), runs, pace=status["pace"])

    def stop(self) -> None:
        with self._connect() as conversation, suppress(SessionError):
            conversation.send({"command": "stop"})
            for _ in conversation.events():
                pass
        until = time.monotonic() + DOWN_S
        while self.is_up():
            if time.monotonic() > until:
                raise SessionError(f"the keeper of {self.name} does not end")
            time.sleep(0.02)
        self.clean()


@dataclass(frozen=True)
class _Execution:
    conversation: LineConnection

    def events(self) -> Iterator[Message]:
        return self.conversation.events()

    def interrupt(self) -> None:
        self.conversation.send({"command": "interrupt"})

    def send_input(self, keys: bytes) -> None:
        self.conversation.send(input_message(keys))

    def resize(self, terminal: Terminal) -> None:
        self.conversation.send(resize_message(terminal))


def session(name: str) -> Session:
    """The session of a lab's name, up or not."""
    return Session(name, state_folder() / name)


def sessions() -> list[Session]:
    """The labs that are up; what is stale is removed."""
    found = []
    folder = state_folder()
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (session := Session(path.name, path)).is_up():
            found.append(session)
        elif (path / LOCK).exists():
            session.clean()
    return found


def check_name_free(name: str) -> None:
    """SessionError if a lab of this name is up, in virtual time or elsewhere."""
    if session(name).is_up():
        raise SessionError(f"the lab {name} is up already; `qbed down {name}` takes it down")
    check_name_free_elsewhere(name, NAME)


def _copy_tc_plugins(toolchain: Toolchain, folder: Path) -> None:
    """Copy tc's plugins of the schemes, also of the user's repository, if they were built for the installed tc: they
    share its structures.
    """
    if os.path.lexists(toolchain.folder / TC):
        toolchain.check(toolchain.names_in(TC))
    try:
        version = subprocess.run(["tc", "-V"], env={"PATH": TC_PATH}, capture_output=True, check=True).stdout
        if (built := tc_plugins(toolchain.folder, version)) is not None:
            shutil.copytree(built, folder)
    except (OSError, subprocess.CalledProcessError):
        return


def start(plan: Plan, file: Path, limits: Limits) -> None:
    """Bring a lab up: returns when its nodes are ready. The keeper and the guest go on when this process ends."""
    running = session(plan.lab)
    running.home.parent.mkdir(parents=True, exist_ok=True)
    check_name_free(plan.lab)
    toolchain = toolchain_of(plan.kernel)
    running.clean()
    running.home.mkdir(mode=0o700)
    running.folder.mkdir()
    (running.folder / "plan.json").write_text(plan.dumps())
    _copy_tc_plugins(toolchain, running.folder / TC)
    (running.home / LAB).write_text(str(file.resolve()))
    (running.home / SEES).write_text(json.dumps([str(path) for path in shared_folders(file)]))
    (running.home / LIMITS).write_text(json.dumps(asdict(limits)))
    with (running.home / LOG).open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "qbed.substrates.virtual.keeper", str(running.home)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert keeper.stdout is not None
    try:
        with keeper.stdout as stdout:
            word = stdout.readline().decode().strip()
    except KeyboardInterrupt:
        keeper.terminate()
        raise
    if word != "ready":
        keeper.wait(DOWN_S)
        error = word or (running.home / LOG).read_text(errors="replace")[-2000:]
        running.clean()
        raise SessionError(f"the lab {plan.lab} did not come up: {error.replace(chr(31), chr(10))}")
