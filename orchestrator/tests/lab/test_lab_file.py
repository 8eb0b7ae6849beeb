# SPDX-License-Identifier: Apache-2.0
"""The lab file: what is accepted, and what the messages say about the rest."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qbed.base.errors import LabError
from qbed.config.source import parse
from qbed.config.units import Amount
from qbed.lab.settings import CONTROLLER_FIELDS
from qbed.network.load import lab_from_source, load_lab
from qbed.network.resolve import ResolvedLab
from qbed.schemes.declaration import controllers

LABS = sorted((Path(__file__).parents[3] / "labs").glob("*/lab.yml"))

GOOD = """\
name: small
topology: {dumbbell: {left: 2, right: 2}}
links:
  default: {rate: 10 Gbit/s, delay: 5 us}
switches:
  default: {scheme: ecn, buffer: 128 KB, threshold: 20 packets}
hosts:
  default: {tcp: dctcp, rto_min: 10 ms}
workload:
  - flow: {from: h1, to: h3, size: 1 MB}
  - incast: {senders: 3, receiver: h1, size: 32 KB, start: 10 ms}
duration: 100 ms
"""


def load(text: str, overrides: dict[str, Any] | None = None) -> ResolvedLab:
    return lab_from_source(parse(text, file="lab.yml"), overrides)


def messages(text: str, overrides: dict[str, Any] | None = None) -> list[str]:
    with pytest.raises(LabError) as error:
        load(text, overrides)
    return error.value.messages


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.parent.name)
def test_the_labs_are_valid_and_quiet(path: Path) -> None:
    resolved = load_lab(path.parent)
    assert resolved.lab.name == path.parent.name
    assert resolved.warnings == []


# Each row: what is replaced in GOOD, by what, and the message.
BAD = [
    ("delay: 5 us", "delay: 5", "lab.yml:4:37: links.default.delay: expected a duration such as `5 us`, got `5`"),
    ("delay: 5 us", "dely: 5 us", "lab.yml:4:30: links.default.dely: unknown field; did you mean `delay`?"),
    ("rate: 10 Gbit/s", "rate: 0 bit/s", "lab.yml:4:19: links.default.rate: expected at least 1 bit/s, got `0 bit/s`"),
    ("rate: 10 Gbit/s, ", "", "lab.yml:4:3: links: the link `h1-s1` has no rate at h1: expected one, for example `default: {rate: 10 Gbit/s}`"),
    ("scheme: ecn", "scheme: ecm", "lab.yml:6:21: switches.default.scheme: no scheme is called `ecm`; did you mean `ecn`?"),
    ("incast: {senders: 3, receiver: h1, size: 32 KB, start: 10 ms}", "arrivals: {interval: 1 us, size: {pareto: {mean: 50 KB, shape: 1.2, max: 8 KB}}}", "lab.yml:11:47: workload[1].arrivals.size.pareto: expected `max` above the smallest size, 8333 B, got 8000 B"),
    ("incast: {senders: 3, receiver: h1, size: 32 KB, start: 10 ms}", "arrivals: {load: 0.5, size: 1 KB, together: on}", "lab.yml:11:15: workload[1].arrivals: expected `interval` with `together`, not `load`"),
    ("scheme: ecn", "scheme: fq_codel", 'lab.yml:6:21: switches.default.scheme: no scheme is called `fq_codel`; `fq_codel` is a qdisc of Linux: write `qdisc: "fq_codel ..."`'),
    ("scheme: ecn", "scheme: fq_codel limit 9", 'lab.yml:6:21: switches.default.scheme: no scheme is called `fq_codel limit 9`; `fq_codel` is a qdisc of Linux: write `qdisc: "fq_codel limit 9"`'),
    ("scheme: ecn", "aqm: ecn", "lab.yml:6:13: switches.default.aqm: unknown field; did you mean `scheme`?"),
    ("tcp: dctcp", "cca: dctcp", "lab.yml:8:13: hosts.default.cca: unknown field; did you mean `tcp`?"),
    ("rate: 10 Gbit/s", "rate: 100 MB/s", "lab.yml:4:19: links.default.rate: expected a rate such as `10 Gbit/s`, got `100 MB/s`; write `800 Mbit/s`"),
    ("rate: 10 Gbit/s", "bandwidth: 10 Gbit/s", "lab.yml:4:13: links.default.bandwidth: unknown field; did you mean `rate`?"),
    ("  - flow: {from: h1, to: h3, size: 1 MB}\n  - incast", "  flow: {from: h1, to: h3, size: 1 MB}\n  incast", "lab.yml:10:3: workload: expected a list, got fields; write `- flow: ...`, each entry with `- `"),
    ("  default: {tcp", "  - default: {tcp", "lab.yml:8:3: hosts: expected fields (`name: value`), got a list; write `default: ...` without `- `"),
    ("  default: {tcp", "\tdefault: {tcp", "lab.yml:8:1: not valid YAML: found character that cannot start any token; write spaces instead of the tab"),
    ("threshold: 20", "treshold: 20", "lab.yml:6:42: switches.default.treshold: unknown field; did you mean `threshold`?"),
    ("buffer: 128 KB", "buffer: 128", "lab.yml:6:34: switches.default.buffer: expected an amount such as `128 KB` or `20 packets`, got `128`"),
    ("buffer: 128 KB", "buffer: 1 KB", "lab.yml:6:34: switches.default.buffer: expected room for one frame of 1514 bytes at least, got `1 KB`"),
    ("20 packets", "20", "lab.yml:6:53: switches.default.threshold: expected an amount such as `128 KB` or `20 packets`, got `20`"),
    ("tcp: dctcp", "tcp: dctp", "lab.yml:8:18: hosts.default.tcp: no congestion control is called `dctp`; did you mean `dctcp`?"),
    ("  default: {tcp", "  h9: {tcp", "lab.yml:8:3: hosts.h9: no host is called `h9`; expected one of `h1`, `h2`, `h3`, `h4`"),
    ("  default: {tcp", "  g*: {tcp", "lab.yml:8:3: hosts.g*: no host is called `g*`; expected one of `h1`, `h2`, `h3`, `h4`"),
    ("from: h1", "from: h7", "lab.yml:10:18: workload[0].flow.from: no host is called `h7`; expected one of `h1`, `h2`, `h3`, `h4`"),
    ("from: h1", "from: s1", "lab.yml:10:18: workload[0].flow.from: `s1` is a switch, expected a host"),
    ("from: h1", "from: h3", "lab.yml:10:11: workload[0].flow: `h3` cannot send to itself"),
    ("from: h1, ", "", "lab.yml:10:11: workload[0].flow.from: this field is missing"),
    ("senders: 3", "senders: 4", "lab.yml:11:23: workload[1].incast.senders: 4 senders, but the lab has 3 hosts besides the receiver"),
    ("senders: 3", "senders: h1..h3", "lab.yml:11:23: workload[1].incast.senders: the receiver `h1` is among the senders"),
    ("senders: 3", "senders: [h2, x*]", "lab.yml:11:23: workload[1].incast.senders: no host matches `x*`"),
    ("start: 10 ms", "start: 1 s", "lab.yml:11:60: workload[1].incast.start: starts at 1 s, after the lab's end at 100 ms"),
    ("size: 32 KB", "size: 0 B", "lab.yml:11:46: workload[1].incast.size: expected at least 1 byte, got `0 B`"),
    ("incast: {", "incst: {", "lab.yml:11:5: workload[1].incst: unknown field; did you mean `incast`?"),
    ("left: 2", "left: two", "lab.yml:2:29: topology.dumbbell.left: expected a whole number, got `two`"),
    ("left: 2", "left: 0", "lab.yml:2:29: topology.dumbbell.left: expected at least 1, got `0`"),
    ("dumbbell: {", "dumbell: {", "lab.yml:2:12: topology.dumbell: unknown field; did you mean `dumbbell`?"),
    ("duration: 100 ms", "seed: 1", "lab.yml:1:1: duration: this field is missing"),
    ("duration: 100 ms", "duration: 0 s", "lab.yml:12:11: duration: expected at least 1 ns, got `0 ns`"),
    ("duration: 100 ms", "duration: 100 ms\nduration: 1 s", "lab.yml:13:1: the field `duration` is given twice"),
    ("duration: 100 ms", "duration: 100 ms\nobserve: {ports: {h3>s1: summary}}", "lab.yml:13:19: observe.ports.h3>s1: no link leads `h3>s1`; did you mean `h3>s2`?"),
    ("duration: 100 ms", "duration: 100 ms\nobserve: {queues: all}", "lab.yml:13:19: observe.queues: expected `summary` or `every packet` or an interval such as `100 us`, got `all`"),
    ("duration: 100 ms", "duration: 100 ms\ncapture: [h1]", "lab.yml:13:11: capture[0]: no link leads `h1`; expected a direction such as `h1>s1`"),
    ("delay: 5 us", "loss: 1", "lab.yml:4:36: links.default.loss: expected less than 1: a link that loses every frame is none"),
    ("rto_min: 10 ms", "rto_min: 1 ns", "lab.yml:8:34: hosts.default.rto_min: expected at least 1 us, got `1 ns`"),
    ("  - flow", "  - udp: {from: h1, to: h2, rate: 0 bit/s}\n  - flow", "lab.yml:10:35: workload[0].udp.rate: expected at least 1 bit/s, got `0 bit/s`"),
    ("name: small", "name: Small Lab", "lab.yml:1:7: name: expected text that matches ^[a-z0-9][a-z0-9-]{0,62}$, got `Small Lab`"),
    ("  default: {rate", "  h1-s2: {mtu: 9 KB}\n  default: {rate", "lab.yml:4:3: links.h1-s2: no link or layer is called `h1-s2`; did you mean `s1-s2`?"),
    ("  default: {rate", "  left: {delay: [1 us, 2 us, 3 us]}\n  default: {rate", "lab.yml:4:17: links.left.delay: a list of 3 does not spread evenly over the 2 links that this names"),
    ("  default: {rate", "  left: {mtu: 10 B}\n  default: {rate", "lab.yml:4:15: links.left.mtu: expected 68 to 65535 bytes, got `10 B`"),
    ("  default: {rate", "  left: {ends: {h3: {loss: 1 %}}}\n  default: {rate", "lab.yml:4:17: links.left.ends.h3: no link of `left` ends at `h3`; expected one of `h1`, `h2`, `s1`"),
    ("  default: {scheme: ecn", "  s3: {}\n  default: {scheme: ecn", "lab.yml:6:3: switches.s3: no switch is called `s3`; expected one of `s1`, `s2`"),
    ("  default: {scheme: ecn", "  h1>s1: {}\n  default: {scheme: ecn", "lab.yml:6:3: switches.h1>s1: `h1` is a host; its queue is `queue` under `hosts`"),
    ("duration: 100 ms", "duration: 100 ms\nkernel_parameters: {tcp_cubic/histart: 0}", "lab.yml:13:40: kernel_parameters.\"tcp_cubic/histart\": no parameter that a lab can set is called so; did you mean `tcp_cubic/hystart`?"),
    ("duration: 100 ms", "duration: 100 ms\nkernel_parameters: {tcp_cubic/hystart: 2}", "lab.yml:13:20: kernel_parameters: `tcp_cubic/hystart`: expected 0 to 1, got `2`"),
    ("duration: 100 ms", "duration: 100 ms\nkernel_parameters: {tcp_cubic/hystart: off}", "lab.yml:13:40: kernel_parameters.\"tcp_cubic/hystart\": expected a whole number, got `off`"),
    ("  default: {scheme: ecn", "  s1: {qdisc: ''}\n  default: {scheme: ecn", "lab.yml:6:15: switches.s1.qdisc: expected tc's words such as `fq_codel limit 100`, got ``"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), BAD, ids=[f"{new}" for _, new, _ in BAD])
def test_one_clear_message(old: str, new: str, message: str) -> None:
    assert old in GOOD
    assert messages(GOOD.replace(old, new)) == [message]


RATE = GOOD.replace("size: 1 MB}", "size: 1 MB, transport: rate}").replace(
    "rto_min: 10 ms}", "controller: {name: fixed, rate: 1 Gbit/s}, reflect: 2.5 %}"
)
TIMELY = RATE.replace("name: fixed, rate: 1 Gbit/s", "name: timely, signal: max, bits: 4, q_low: 20 us, rate: 1 Gbit/s")
BAD_RATE = [
    ("name: fixed", "name: fixd", "lab.yml:8:44: hosts.default.controller.name: no controller is called `fixd`; did you mean `fixed`?"),
    ("{name: fixed, rate: 1 Gbit/s}", "fixd", "lab.yml:8:37: hosts.default.controller.name: no controller is called `fixd`; did you mean `fixed`?"),
    ("name: fixed, rate:", "name: fixed, rat:", "lab.yml:8:51: hosts.default.controller.rat: unknown field; did you mean `rate`?"),
    ("rate: 1 Gbit/s", "rate: 1", "lab.yml:8:57: hosts.default.controller.rate: expected a rate such as `10 Gbit/s`, got `1`"),
    ("rate: 1 Gbit/s", "rate: 1 Tbit/s", "lab.yml:8:57: hosts.default.controller.rate: expected at most `400 Gbit/s`, got `1 Tbit/s`"),
    ("rate: 1 Gbit/s", "bits: 33", "lab.yml:8:57: hosts.default.controller.bits: expected at most 32, got `33`"),
    ("rate: 1 Gbit/s", "signal: summ", "lab.yml:8:59: hosts.default.controller.signal: expected `rtt`, `sum`, `sum_squ`, `max`, `ind` or `vector`, got `summ`"),
    ("rate: 1 Gbit/s", "unit: ns", "lab.yml:8:57: hosts.default.controller.unit: expected `packets`, `bytes` or `time`, got `ns`"),
    ("reflect: 2.5 %", "reflect: 2", "lab.yml:8:77: hosts.default.reflect: expected a fraction from 0 to 1 or a percentage such as `1 %`, got `2`"),
    ("transport: rate", "transport: rat", "lab.yml:10:53: workload[0].flow.transport: expected `tcp` or `rate`, got `rat`"),
    ("name: fixed, ", "", "lab.yml:10:53: workload[0].flow.transport: the sender `h1` has no controller: expected one, for example `hosts: {default: {controller: aimd}}`"),
    ("delay: 5 us", "mtu: 100 B", "lab.yml:10:53: workload[0].flow.transport: its packets have 116 bytes of headers, which do not fit an MTU of 100 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), BAD_RATE, ids=[new for _, new, _ in BAD_RATE])
def test_one_clear_message_of_rates(old: str, new: str, message: str) -> None:
    assert old in RATE and load(RATE).warnings == []
    assert messages(RATE.replace(old, new)) == [message]


def test_every_sender_needs_a_controller() -> None:
    text = RATE.replace("  default: {tcp", "  h1: {tcp").replace("size: 32 KB,", "size: 32 KB, transport: rate,")
    (message,) = messages(text)
    assert "workload[1].incast.transport: the sender `h2` has no controller, nor have 2 more" in message


NO_USE_FOR_RATES = [
    ("transport: rate", "transport: rate, tcp: bbr", "lab.yml:10:64: workload[0].flow.tcp: the transport `rate` has no congestion control of TCP: not used; expected a host's `controller`"),
    ("transport: rate", "transport: rate, connect: before", "lab.yml:10:68: workload[0].flow.connect: the transport `rate` has no handshake: not used; expected no `connect`, or `transport: tcp`"),
    ("rate: 1 Gbit/s", "bits: 4", "lab.yml:8:57: hosts.default.controller.bits: its flows request no signal from switches: not used; expected a `signal` beside it, such as `max`"),
    ("rate: 1 Gbit/s", "step: 3 Mbit/s", "lab.yml:8:57: hosts.default.controller.step: the controller `fixed` has no parameter `step`: not used; expected a controller that has it (`aimd`, `extent`, `reaction_point`)"),
    ("controller: {name: fixed, rate: 1 Gbit/s}", "reflect: 1 %}\n  h1: {controller: {name: fixed}}\n  h2: {controller: {rate: 1 Gbit/s}", "lab.yml:10:27: hosts.h2.controller.rate: there is no controller: not used; expected a `name` beside it"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), NO_USE_FOR_RATES, ids=[new for _, new, _ in NO_USE_FOR_RATES])
def test_what_rates_have_no_use_for_is_refused(old: str, new: str, message: str) -> None:
    assert messages(RATE.replace(old, new)) == [message]


def test_a_signal_that_the_controller_does_not_go_by_is_warned_of() -> None:
    (unused,) = load(RATE.replace("rate: 1 Gbit/s", "signal: max")).warnings
    assert unused.endswith("controller.signal: the controller `fixed` goes by no signal: not used")


def test_controllers_without_flows_that_use_them_are_refused() -> None:
    text = "no workload has `transport: rate`: not used; expected that of one, or no such setting"
    assert messages(RATE.replace(", transport: rate", "")) == [
        f"lab.yml:8:37: hosts.default.controller: {text}",
        f"lab.yml:8:77: hosts.default.reflect: {text}",
    ]
    assert load(RATE, {"workload[0].flow.transport": "tcp"}).warnings == [
        f"lab.yml:8:37: hosts.default.controller: {text}",
        f"lab.yml:8:77: hosts.default.reflect: {text}",
    ]


def test_controllers_that_wait_for_what_no_queue_gives() -> None:
    text = RATE.replace("name: fixed, rate: 1 Gbit/s", "name: timely, signal: max")
    assert load(text, {"switches.s1>s2": {"scheme": "stamp"}}).warnings == []
    assert load(text.replace("signal: max", "signal: rtt")).warnings == []
    assert load(text).warnings == [
        "lab.yml:8:60: hosts.default.controller.signal: no queue of the lab provides a signal, as the scheme `stamp` does"
    ]
    text = text.replace("name: timely, signal: max", "name: reaction_point")
    assert load(text, {"switches.default": {"scheme": "qcn"}}).warnings == []
    assert load(text).warnings == [
        "lab.yml:8:44: hosts.default.controller.name: no queue of the lab provides a feedback, as the scheme `qcn` does"
    ]


def test_the_more_specific_controller_wins_field_by_field() -> None:
    text = RATE.replace("workload:", "  h2: {controller: {bits: 4, forward: on}}\nworkload:")
    resolved = load(text, {"hosts.h1.controller.rate": "2 Gbit/s", "links.default.rate": "40 Gbit/s"})
    specs = resolved.controllers
    assert [(specs[name].bits, specs[name].forward) for name in ("h1", "h2")] == [(32, False), (4, True)]
    rates = {name: controllers()["fixed"].describe(spec.options)["rate"] for name, spec in specs.items()}
    assert rates == {"h1": "2 Gbit/s", "h2": "1 Gbit/s", "h3": "1 Gbit/s", "h4": "1 Gbit/s"}
    as_the_link = load(RATE.replace("name: fixed, rate: 1 Gbit/s", "name: fixed"), {"links.default.rate": "40 Gbit/s"})
    assert controllers()["fixed"].describe(as_the_link.controllers["h1"].options) == {"rate": "39630118.89 kbit/s"}


def test_no_controller_has_a_parameter_that_is_a_field() -> None:
    assert not [name for controller in controllers().values() for name in CONTROLLER_FIELDS & set(controller.by_name)]


def test_several_errors_at_once_in_the_files_order() -> None:
    text = GOOD.replace("5 us", "5").replace("10 ms}", "10}").replace("128 KB", "128")
    found = messages(text)
    assert [message.split(": ")[1] for message in found] == [
        "links.default.delay",
        "switches.default.buffer",
        "hosts.default.rto_min",
        "workload[1].incast.start",
    ]


@pytest.mark.parametrize("text", ["", "- a\n", "5\n", "text\n"])
def test_what_is_no_lab(text: str) -> None:
    assert messages(text) == ["lab.yml:1:1: expected a lab: a mapping of fields such as `name: my-lab`"]


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"lab\.yml: cannot read it: No such file or directory"):
        load_lab(tmp_path)


EXPLICIT = """\
name: small
topology:
  explicit:
    nodes: {h1..h3: host, s1: switch, s2: switch}
    links: [{ends: [h1..h2, s1]}, {ends: [s2, h3]}]
links: {default: {rate: 1 Gbit/s}}
workload: [{flow: {from: h1, to: h2}}]
duration: 1 s
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("to: h2", "to: h3", "lab.yml:7:19: workload[0].flow: there is no path between `h1` and `h3`"),
        ("s1: switch", "h2: switch", 'lab.yml:4:31: topology.explicit.nodes.h2: the node `h2` is given twice'),
        ("s1: switch", "S1: switch", "lab.yml:4:31: topology.explicit.nodes.S1: expected a name of at most 32 letters a-z, digits and inner `-`, got `S1`"),
        ("h1..h3", "h3..h1", 'lab.yml:4:21: topology.explicit.nodes."h3..h1": expected a range such as `h1..h10`, got `h3..h1`'),
        ("[s2, h3]", "[s2, h4]", "lab.yml:5:42: topology.explicit.links[1].ends: no node is called `h4`; expected one of `h1`, `h2`, `h3`, `s1`, `s2`"),
        ("[s2, h3]", "[s2]", "lab.yml:5:42: topology.explicit.links[1].ends: expected at least 2 entries, got 1"),
        ("[s2, h3]", "[s2, s2]", "lab.yml:5:42: topology.explicit.links[1].ends: a link needs two nodes, got `s2` twice"),
        ("[h1..h2, s1]", "[h1..h2, h1..h3]", "lab.yml:5:20: topology.explicit.links[0].ends: ranges of 2 and 3 nodes do not pair up"),
        ("[s2, h3]", "[s2, h3], name: h1-s1", "lab.yml:5:35: topology.explicit.links[1]: two links are called `h1-s1`"),
    ],
)  # fmt: skip
def test_explicit_topologies(old: str, new: str, message: str) -> None:
    load(EXPLICIT)
    assert messages(EXPLICIT.replace(old, new)) == [message]


def test_the_more_specific_setting_wins() -> None:
    text = GOOD.replace(
        "  default: {rate",
        "  h1>s1: {rate: 5 Gbit/s}\n  h1-s1: {rate: 4 Gbit/s, delay: 1 us}\n  h*-s1: {rate: 3 Gbit/s}\n"
        "  left: {rate: 2 Gbit/s, delay: 7 us, ends: {s1: {loss: 1 %}}}\n  default: {rate",
    )
    links = load(text).links
    h1, h2, core = links[0], links[1], links[2]
    assert (h1.a.rate_bps, h1.b.rate_bps, h2.a.rate_bps) == (5 * 10**9, 4 * 10**9, 3 * 10**9)
    assert (h1.a.delay_ns, h2.a.delay_ns, core.a.delay_ns) == (1_000, 7_000, 5_000)
    assert (h1.a.loss, h1.b.loss, core.a.loss) == (0.0, 0.01, 0.0)


def test_ports_override_switches() -> None:
    text = GOOD.replace(
        "  default: {scheme: ecn",
        "  s1>s2: {threshold: 30 packets}\n  s1: {buffer: 64 KB}\n  s2: {qdisc: fq_codel limit 100}\n"
        "  default: {scheme: ecn",
    )
    queues = load(text).switch_queues
    assert queues[2, "a"].values == {"buffer": Amount(64_000, "bytes"), "threshold": Amount(30, "packets")}
    assert queues[0, "b"].values["threshold"] == Amount(20, "packets")
    assert queues[2, "b"].tc == ("fq_codel", "limit", "100")


def test_a_list_of_delays_spreads_over_a_layer() -> None:
    text = GOOD.replace("left: 2", "left: 4").replace(
        "  default: {rate", "  left: {delay: [1 us, 2 us]}\n  default: {rate"
    )
    assert [link.a.delay_ns for link in load(text).links[:4]] == [1_000, 1_000, 2_000, 2_000]


def test_warnings() -> None:
    warnings = load(GOOD, {"switches.default.scheme": "droptail"}).warnings
    assert warnings == [
        "lab.yml:6:53: switches.default.threshold: the scheme `droptail` has no parameter `threshold`: not used;"
        " expected a scheme that has it (`abq`, `ecn`, `rpm`, `stamp`)"
    ]
    warnings = load(GOOD.replace("20 packets", "200 packets")).warnings
    assert warnings == [
        "lab.yml:6:53: switches.default.threshold: `200 packets` is more than the buffer of `128 KB`: never reached"
    ]


WITHOUT_EFFECT = [
    ("scheme: ecn", "scheme: droptail", "lab.yml:6:58: switches.default.threshold: the scheme `droptail` has no parameter `threshold`: not used; expected a scheme that has it (`abq`, `ecn`, `rpm`, `stamp`)"),
    ("scheme: ecn", "scheme: abq, above: droptail, ecn_threshold: 9 packets", "lab.yml:6:58: switches.default.ecn_threshold: is for the queue inside, whose scheme `droptail` has no such parameter: not used; expected another scheme inside"),
    ("{scheme: ecn, buffer: 128 KB, threshold: 20 packets}", "{qdisc: pfifo limit 1000, buffer: 20 packets}", "lab.yml:6:46: switches.default.buffer: has no effect beside `qdisc: pfifo limit 1000` (lab.yml:6:20: switches.default.qdisc), whose words are all that the queue has; expected `pfifo limit ...` in these words, or a `scheme` instead of `qdisc`"),
    ("  default: {scheme: ecn, buffer: 128 KB, threshold: 20 packets}", "  default: {qdisc: fq_codel}\n  s1: {target: 1 ms}", "lab.yml:7:16: switches.s1.target: has no effect beside `qdisc: fq_codel` (lab.yml:6:20: switches.default.qdisc), whose words are all that the queue has; expected what `tc` calls it, behind `fq_codel` in these words, or a `scheme` instead of `qdisc`"),
    ("rto_min: 10 ms", "queue: {qdisc: fq, buffer: 9 packets}", "lab.yml:8:52: hosts.default.queue.buffer: has no effect beside `qdisc: fq` (lab.yml:8:40: hosts.default.queue.qdisc), whose words are all that the queue has; expected `fq limit ...` in these words, or a `scheme` instead of `qdisc`"),
    ("rto_min: 10 ms", "queue: {threshold: 9 packets}", "lab.yml:8:44: hosts.default.queue.threshold: the scheme `droptail` has no parameter `threshold`: not used; expected a scheme that has it (`abq`, `ecn`, `rpm`, `stamp`)"),
    ("delay: 5 us", "reordering: on", "lab.yml:4:42: links.default.reordering: all frames take the same time: not used; expected a `jitter` beside it"),
    ("duration: ", "programs: [{on: h1, run: 'ask {bytes}', arguments: {bytes: 1, rate: 2}}]\nduration: ", "lab.yml:12:69: programs[0].arguments.rate: `run` has no `{rate}`: not used; expected it among the words of `run`"),
    ("duration: ", "frr: {protocol: bgp}\nduration: ", "lab.yml:12:6: frr: has no effect: `routing` is `static`; expected `routing: frr`"),
    ("duration: ", "events: [{at: 1 us, queue: s1>s2, set: {target: 1 ms}}]\nduration: ", "lab.yml:12:49: events[0].set.target: the scheme `ecn` has no parameter `target`: not used; expected a scheme that has it (`codel`, `dualpi2`, `rpm`)"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), WITHOUT_EFFECT, ids=[new for _, new, _ in WITHOUT_EFFECT])
def test_settings_without_effect_are_refused(old: str, new: str, message: str) -> None:
    assert old in GOOD
    assert messages(GOOD.replace(old, new)) == [message]


@pytest.mark.parametrize(
    ("path", "value", "read"),
    [
        ("switches.default.scheme", "droptail", lambda lab: lab.switches["default"].scheme),
        ("workload[1].incast.senders", 2, lambda lab: lab.workload[1].incast.senders),
        ("hosts.default.ecn", "on", lambda lab: lab.hosts["default"].ecn),
        ("addressing", "both", lambda lab: lab.addressing),
        ("observe.queues", "every packet", lambda lab: lab.observe.queues),
        ("hosts.h1.tcp", "reno", lambda lab: lab.hosts["h1"].tcp),
        ('hosts."h1..h2".tcp', "reno", lambda lab: lab.hosts["h1..h2"].tcp),
    ],
)
def test_overrides_set_fields(path: str, value: object, read: Any) -> None:
    assert read(load(GOOD, {path: value}).lab) == value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("links.default.rate", 10, "lab.yml with links.default.rate=10: links.default.rate: expected a rate such as `10 Gbit/s`, got `10`"),
        ("links.default.rat", "1 Gbit/s", "lab.yml with links.default.rat=1 Gbit/s: links.default.rat: unknown field; did you mean `rate`?"),
        ("link.default.rate", "1 Gbit/s", "lab.yml with link.default.rate=1 Gbit/s: link: unknown field; did you mean `links`?"),
        ("workload[7].flow.size", "1 MB", "lab.yml with workload[7].flow.size=1 MB: workload has 2 entries; expected an index below that, got 7"),
        ("name.x", 1, "lab.yml with name.x=1: name is `small`, which has no field `x`"),
        ("duration[0]", 1, "lab.yml with duration[0]=1: duration is not a list"),
        ("[0]", 1, "lab.yml with [0]=1: expected a field such as `links.default.rate` or `workload[0].flow.size`, got `[0]`"),
        ("switches.default.scheme", "rpm2", "lab.yml with switches.default.scheme=rpm2: switches.default.scheme: no scheme is called `rpm2`; expected one of"),
    ],
)  # fmt: skip
def test_overrides_that_are_wrong(path: str, value: object, message: str) -> None:
    (found,) = messages(GOOD, {path: value})
    assert found.startswith(message.replace("; expected one of", ""))


def test_overrides_leave_the_source_alone() -> None:
    source = parse(GOOD)
    original = source.values
    lab_from_source(source, {"seed": 7})
    assert isinstance(original, dict) and "seed" not in original


# --- any input gives a lab or messages, never a traceback -----------------------------------------------------------

_WORDS = ["", "~", "0", "-1", "[]", "{}", "h1", "h1..h3", "h*", "s1>h1", "1 Gbit/s", "5 us", "128 KB", "[h1, [h2]]",
          "{default: 1}", "default", "!!x y", "*a", "&a b", "'", "\t", ": ", "1e999", "0.1 %", "unlimited"]  # fmt: skip


@st.composite
def mutations(draw: st.DrawFn) -> str:
    """A valid lab file of which some characters, words or lines are changed."""
    text = draw(st.sampled_from([GOOD, EXPLICIT, RATE, TIMELY, *(path.read_text() for path in LABS)]))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        length = draw(st.integers(0, 25))
        text = text[:start] + draw(st.sampled_from(_WORDS) | st.text(max_size=4)) + text[start + length :]
    return text


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutations())
def test_mutated_files_never_raise_anything_else(text: str) -> None:
    try:
        load(text)
    except LabError as error:
        assert error.messages
        assert all(message.startswith("lab.yml") for message in error.messages)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(_WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = [
    "topology", "topology.dumbbell", "links", "links.default", "links.default.rate", "links.h1-s1.ends", "switches.s1",
    "switches.default.buffer", "switches.default.threshold", "hosts.default.queue", "hosts.h1.sysctls", "workload",
    "workload[0]", "workload[0].flow.size", "workload[1].incast.senders", "workload[0].arrivals", "observe",
    "observe.ports", "capture", "duration", "seed", "memory", "addressing", "name", "workload[0].flow.transport",
    "hosts.default.controller", "hosts.default.controller.name", "hosts.default.controller.signal",
    "hosts.default.controller.rate", "hosts.default.controller.q_low", "hosts.h1.controller.bits", "hosts.h1.reflect",
]  # fmt: skip


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([GOOD, RATE, TIMELY]), st.dictionaries(st.sampled_from(_FIELDS), _VALUES, min_size=1, max_size=2)
)
def test_any_value_in_any_field(text: str, overrides: dict[str, Any]) -> None:
    try:
        load(text, overrides)
    except LabError as error:
        assert error.messages


def test_what_a_qdisc_replaces_is_no_setting_beside_it() -> None:
    """The buffer of all switches holds where no queue is given by tc's words."""
    text = GOOD.replace("  default: {scheme", "  s1: {qdisc: pfifo limit 1000}\n  default: {scheme")
    assert load(text).warnings == []


def test_a_pairing_without_effect_is_refused() -> None:
    text = GOOD.replace("flow: {from: h1, to: h3", "flows: {from: h1..h3, to: h4, pairing: permutation")
    assert messages(text) == [
        "lab.yml:10:44: workload[0].flows.pairing: 3 senders and 1 receivers: expected as many of the one as of the"
        " other, or `random`"
    ]
    text = GOOD.replace("flow: {from: h1, to: h3", "flows: {pairs: [[h1, h3]], pairing: random")
    assert messages(text) == [
        "lab.yml:10:41: workload[0].flows.pairing: `pairs` has a receiver for each sender: expected `from` and `to`"
    ]


def test_settings_of_nothing_are_refused() -> None:
    text = "name: x\ntopology: {explicit: {nodes: {h1..h2: host}, links: [{ends: [h1, h2]}]}}\n"
    text += "links: {default: {rate: 1 Gbit/s}}\nswitches: {default: {buffer: 9 packets}}\nduration: 1 s\n"
    assert messages(text) == ["lab.yml:4:12: switches.default: the lab has no switch: expected no settings of one"]


def test_an_override_that_nothing_reads_is_refused() -> None:
    text = GOOD.replace("  default: {scheme", "  s*: {buffer: 64 KB}\n  default: {scheme")
    assert load(text).warnings == []  # in a file, it is a fallback
    assert messages(text, {"switches.default.buffer": "32 KB"}) == [
        "lab.yml with switches.default.buffer=32 KB: switches.default.buffer: every switch that `default` names has a"
        " more specific setting: not used; expected it there"
    ]
    (message,) = messages(GOOD, {"switches.default.target": "1 ms"})
    assert "switches.default.target: the scheme `ecn` has no parameter `target`: not used" in message


def test_an_override_does_not_hide_an_error_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "lab.yml").write_text(GOOD.replace("scheme: ecn", "scheme: ecm"))
    with pytest.raises(LabError) as error:
        load_lab(tmp_path, {"switches.default.scheme": "ecn"})
    assert error.value.messages == [
        f"{tmp_path}/lab.yml:6:21: switches.default.scheme: no scheme is called `ecm`; did you mean `ecn`?"
    ]


def test_a_more_specific_override_makes_a_general_one_a_fallback() -> None:
    overrides = {"switches.default": {"scheme": "droptail", "buffer": "64 KB"}, "switches.s*.buffer": "32 KB"}
    assert load(GOOD, overrides).warnings == []
