// SPDX-License-Identifier: Apache-2.0
//! Rules that the agent relies on: indices, names of files, times that can be added, workloads that can be drawn. The
//! types of the plan, its JSON Schema and the host check the rest, and the kernel refuses invalid numbers. Every error
//! names the object.

use crate::failure::{Failure, Result};
use crate::plan::pipeline::Pipeline;
use crate::plan::workload::{Family, Interarrival, Pairs, Pattern, Workload};
use crate::plan::{ChangeKind, Node, NodeKind, Plan, Qdisc, Sysctls, TIME_MAX_NS};
use std::collections::BTreeSet;

/// IFNAMSIZ - 1, for the terminating NUL.
const INTERFACE_NAME_MAX: usize = 15;

/// Limit on flows: all are drawn before the first starts and must fit into the guest's memory.
const FLOWS_MAX: f64 = 100e6;

/// QP4_DROP_PORT: the largest 9-bit port number means drop.
const PORTS_MAX: usize = 511;

/// QTAP_MAX_BOUNDS
const BOUNDS_MAX: usize = 64;

fn require(holds: bool, error: impl FnOnce() -> String) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(Failure::new(error()))
    }
}

fn is_file_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

fn is_plain_path(path: &str) -> bool {
    path.starts_with('/') && !path.contains('\0') && !path.split('/').any(|part| part == "..")
}

fn is_program(argv: &[String]) -> bool {
    argv.first().is_some_and(|name| !name.is_empty() && !name.ends_with('/'))
}

fn is_interface(name: &str) -> bool {
    is_file_name(name) && name.len() <= INTERFACE_NAME_MAX
}

pub fn check(plan: &Plan) -> Result<()> {
    check_times(plan)?;
    for module in &plan.modules {
        require(is_file_name(module), || format!("module {module:?} is not a file name"))?;
    }
    check_sysctls(&format!("lab {}", plan.lab), &plan.sysctls)?;
    let interfaces = check_links(plan)?;
    check_nodes(plan, &interfaces)?;
    check_queues(plan, &interfaces)?;
    check_pipelines(plan, &interfaces)?;
    for capture in &plan.captures {
        require(interfaces.contains(&(capture.node, capture.interface.as_str())), || {
            format!("capture {}: no interface {} on node {}", capture.name, capture.interface, capture.node)
        })?;
        require(is_file_name(&capture.name), || format!("capture {:?} is not a file name", capture.name))?;
        require(capture.snaplen > 0, || format!("capture {}: snaplen is 0", capture.name))?;
    }
    check_events(plan)?;
    check_changes(plan)?;
    check_windows(plan)?;
    check_parts(plan)?;
    check_launches(plan)?;
    for (index, workload) in plan.workloads.iter().enumerate() {
        require(workload.id as usize == index, || {
            format!("workload {}: its id is not {index}", workload.id)
        })?;
        check_workload(plan, workload)?;
    }
    Ok(())
}

fn check_times(plan: &Plan) -> Result<()> {
    let bounded = |field: &dyn std::fmt::Display, ns: u64| {
        require(ns <= TIME_MAX_NS, || {
            format!("{field}: {ns} ns is longer than the limit of {TIME_MAX_NS} ns")
        })
    };
    for (name, ns) in [
        ("epoch_ns", plan.epoch_ns),
        ("duration_ns", plan.duration_ns),
        ("flow_interval_ns", plan.flow_interval_ns),
        ("statistics_interval_ns", plan.statistics_interval_ns),
    ] {
        bounded(&format_args!("lab {}: {name}", plan.lab), ns)?;
    }
    for (link, end) in plan.links.iter().flat_map(|link| link.ends().map(|end| (link, end))) {
        bounded(&format_args!("link {}: delay_ns", link.name), end.delay_ns)?;
        bounded(&format_args!("link {}: jitter_ns", link.name), end.jitter_ns)?;
    }
    for queue in &plan.queues {
        bounded(&format_args!("queue {}: interval_ns", queue.name), queue.observe.interval_ns)?;
    }
    for window in &plan.windows {
        bounded(&format_args!("window {}", window.name), window.from_ns.max(window.until_ns))?;
    }
    for (index, launch) in plan.launches.iter().enumerate() {
        let stop_ns = launch.stop_ns.unwrap_or(0);
        bounded(&format_args!("launch {index}"), launch.start_ns.unsigned_abs().max(stop_ns))?;
    }
    for (index, event) in plan.events.iter().enumerate() {
        bounded(&format_args!("event {index}: at_ns"), event.at_ns)?;
    }
    for (index, change) in plan.changes.iter().enumerate() {
        bounded(&format_args!("change {index}: at_ns"), change.at_ns)?;
        if let ChangeKind::Link(link) = &change.kind {
            bounded(&format_args!("change {index}: delay_ns"), link.delay_ns.unwrap_or(0))?;
        }
    }
    for workload in &plan.workloads {
        let name = format!("workload {} ({})", workload.id, workload.label);
        bounded(&format_args!("{name}: start_ns"), workload.start_ns)?;
        bounded(&format_args!("{name}: stop_ns"), workload.stop_ns.unwrap_or(0))?;
        if let Pattern::Exchanges { spread_ns, .. } = &workload.pattern {
            bounded(&format_args!("{name}: spread_ns"), *spread_ns)?;
        }
        if let Pattern::Flows { spread_ns, each, .. } = &workload.pattern {
            bounded(&format_args!("{name}: spread_ns"), *spread_ns)?;
            let last_ns = each.iter().map(|(after_ns, _)| *after_ns).max();
            bounded(&format_args!("{name}: each"), last_ns.unwrap_or(0))?;
        }
    }
    Ok(())
}

type Interfaces<'a> = BTreeSet<(usize, &'a str)>;

fn check_links(plan: &Plan) -> Result<Interfaces<'_>> {
    let mut interfaces = BTreeSet::new();
    for link in &plan.links {
        for end in link.ends() {
            let object = || format!("link {}: interface {} of node {}", link.name, end.interface, end.node);
            require(end.node < plan.nodes.len(), || format!("{}: no such node", object()))?;
            require(is_interface(&end.interface), || format!("{}: not a name for an interface", object()))?;
            require(end.interface != "lo" && interfaces.insert((end.node, end.interface.as_str())), || {
                format!("{}: the name is taken", object())
            })?;
            let queue = plan.queues.get(end.queue);
            require(queue.is_some_and(|q| q.node == end.node && q.interface == end.interface), || {
                format!("{}: queue {} is not its queue", object(), end.queue)
            })?;
        }
    }
    Ok(interfaces)
}

fn check_nodes(plan: &Plan, interfaces: &Interfaces<'_>) -> Result<()> {
    for (index, node) in plan.nodes.iter().enumerate() {
        require(is_file_name(&node.name), || format!("node {:?}: not a name", node.name))?;
        check_sysctls(&format!("node {}", node.name), &node.sysctls)?;
        check_programs(node)?;
        if let Some(controller) = &node.controller {
            controller
                .check()
                .map_err(|problem| Failure::new(format!("node {}: controller: {problem}", node.name)))?;
        }
        for (route, hop) in node.routes.iter().flat_map(|route| route.via.iter().map(move |hop| (route, hop)))
        {
            let known = hop.interface == "lo" || interfaces.contains(&(index, hop.interface.as_str()));
            require(known, || {
                let (to, interface) = (&route.to, &hop.interface);
                format!("node {}: route to {}/{}: no interface {interface}", node.name, to.address, to.length)
            })?;
        }
    }
    Ok(())
}

fn check_programs(node: &Node) -> Result<()> {
    for path in node.folders.iter().chain(node.files.keys()) {
        require(is_plain_path(path), || format!("node {}: {path:?} is not an absolute path", node.name))?;
    }
    for program in &node.programs {
        require(is_program(&program.argv), || format!("node {}: a program has no name", node.name))?;
        require(program.ready.as_deref().is_none_or(is_plain_path), || {
            format!("node {}: {}: `ready` is not an absolute path", node.name, program.argv[0])
        })?;
    }
    Ok(())
}

fn check_launches(plan: &Plan) -> Result<()> {
    plan.launches.iter().enumerate().try_for_each(|(index, launch)| {
        let error = |problem: &str| format!("launch {index} ({}): {problem}", launch.label);
        require(launch.node < plan.nodes.len(), || error(&format!("no node {}", launch.node)))?;
        require(is_program(&launch.argv), || error("the program has no name"))?;
        Ok(())
    })
}

fn check_events(plan: &Plan) -> Result<()> {
    plan.events.iter().enumerate().try_for_each(|(index, event)| {
        require(event.link < plan.links.len(), || format!("event {index}: no link {}", event.link))
    })
}

fn check_changes(plan: &Plan) -> Result<()> {
    for (index, change) in plan.changes.iter().enumerate() {
        let error = |problem: &str| format!("change {index}: {problem}");
        match &change.kind {
            ChangeKind::Link(link) => {
                require(link.link < plan.links.len(), || error(&format!("no link {}", link.link)))?;
            }
            ChangeKind::Queue(change) => {
                let queue = plan.queues.get(change.queue);
                let queue =
                    queue.ok_or_else(|| Failure::new(error(&format!("no queue {}", change.queue))))?;
                let same_kind = matches!((&queue.qdisc, &change.qdisc),
                    (Qdisc::Raw { kind: before, .. }, Qdisc::Raw { kind, .. }) if before == kind);
                require(same_kind, || error(&format!("queue {} has another kind of qdisc", queue.name)))?;
            }
            ChangeKind::Node(node) => {
                let known = plan.nodes.get(node.node).is_some_and(|node| node.kind == NodeKind::Host);
                require(known, || error(&format!("no host {}", node.node)))?;
            }
        }
    }
    Ok(())
}

fn check_parts(plan: &Plan) -> Result<()> {
    require(plan.parts.is_empty() || plan.parts.len() == plan.nodes.len(), || {
        format!("parts: expected one number for each of {} nodes, not {}", plan.nodes.len(), plan.parts.len())
    })
}

fn check_windows(plan: &Plan) -> Result<()> {
    let bounds = plan.bounds_ns().len();
    require(bounds <= BOUNDS_MAX, || {
        format!("windows begin and end at {bounds} instants, more than {BOUNDS_MAX}")
    })
}

/// Allows only net/: other sysctls may name programs that the kernel starts, and in a container they are the machine's.
fn check_sysctls(owner: &str, sysctls: &Sysctls) -> Result<()> {
    sysctls.keys().try_for_each(|key| {
        let allowed = key.starts_with("net/") && !key.split('/').any(|part| ["", ".", ".."].contains(&part));
        require(allowed, || format!("{owner}: sysctl {key:?} is not a path under /proc/sys/net"))
    })
}

fn check_pipelines(plan: &Plan, interfaces: &Interfaces<'_>) -> Result<()> {
    for (index, node) in plan.nodes.iter().enumerate() {
        let Some(pipeline) = &node.pipeline else { continue };
        let known = plan.p4.iter().any(|program| program.name == pipeline.program);
        require(known, || format!("node {}: the plan has no program {:?}", node.name, pipeline.program))?;
        require(node.kind == NodeKind::Switch, || format!("node {}: a host has no pipeline", node.name))?;
        require(pipeline.ports.len() <= PORTS_MAX, || {
            format!("node {}: more than {PORTS_MAX} ports", node.name)
        })?;
        for port in &pipeline.ports {
            require(interfaces.contains(&(index, port.as_str())), || {
                format!("node {}: no interface {port} for a port", node.name)
            })?;
        }
        check_recirculation(index, node, pipeline, interfaces)?;
    }
    Ok(())
}

fn check_recirculation(
    index: usize,
    node: &Node,
    pipeline: &Pipeline,
    interfaces: &Interfaces<'_>,
) -> Result<()> {
    let mut taken = BTreeSet::new();
    for port in &pipeline.recirculation {
        let object = || format!("node {}: recirculation port {}", node.name, port.port);
        let (number, peer) = (port.port, port.peer());
        let free = number >= pipeline.ports.len() && number < PORTS_MAX && taken.insert(peer.clone());
        require(free, || format!("{}: the number is taken or too large", object()))?;
        for name in [&port.interface, &peer] {
            require(is_interface(name), || format!("{}: {name:?} is not a name for an interface", object()))?;
            let unknown = !interfaces.contains(&(index, name.as_str()));
            require(unknown && (*name == peer || taken.insert(name.clone())), || {
                format!("{}: the name {name} is taken", object())
            })?;
        }
        require(matches!(port.qdisc, Qdisc::Raw { .. }), || {
            format!("{}: its queue is a tc command", object())
        })?;
    }
    Ok(())
}

fn check_queues(plan: &Plan, interfaces: &Interfaces<'_>) -> Result<()> {
    for queue in &plan.queues {
        require(interfaces.contains(&(queue.node, queue.interface.as_str())), || {
            format!("queue {}: no interface {} on node {}", queue.name, queue.interface, queue.node)
        })?;
    }
    Ok(())
}

fn check_workload(plan: &Plan, workload: &Workload) -> Result<()> {
    let error = |problem: &str| format!("workload {} ({}): {problem}", workload.id, workload.label);
    match &workload.pattern {
        Pattern::Flows { size_bytes, each, .. } => {
            require(*size_bytes != Some(0), || error("size_bytes is 0"))?;
            require(each.iter().all(|(_, bytes)| *bytes > 0), || error("a size in each is 0"))?;
        }
        Pattern::Arrivals { pairs, interarrival, size, limit, together } => {
            let positive = match interarrival {
                Interarrival::Exponential(mean) => mean.is_finite() && *mean >= 1.0,
                Interarrival::Fixed(gap) => *gap > 0,
            };
            require(positive, || error("interarrival_ns is below 1"))?;
            let per_arrival = if *together { pairs.count() as f64 } else { 1.0 };
            let flows = (per_arrival * arrivals(plan, workload, *interarrival))
                .min(limit.map_or(f64::MAX, |limit| limit as f64));
            require(flows <= FLOWS_MAX, || error(&format!("{flows:.0} flows are more than {FLOWS_MAX}")))?;
            size.check().map_err(|problem| Failure::new(error(problem)))?;
            check_ends(pairs).map_err(|problem| Failure::new(error(problem)))?;
        }
        Pattern::Exchanges { ends, .. } => {
            check_ends(ends).map_err(|problem| Failure::new(error(problem)))?;
        }
    }
    for (src, dst) in workload.endpoints() {
        require(src != dst, || error(&format!("node {src} is source and destination")))?;
        for node in [src, dst] {
            let found = plan.nodes.get(node);
            let named = found.ok_or_else(|| Failure::new(error(&format!("no node {node}"))))?;
            let reachable = named.addresses.iter().any(|a| Family::of(*a) == workload.family);
            require(reachable, || error(&format!("node {} has no address of its family", named.name)))?;
        }
    }
    let some_pairs = workload.endpoints().next().is_some();
    require(some_pairs, || error("it has no pairs"))
}

fn check_ends(ends: &Pairs) -> std::result::Result<(), &'static str> {
    let Pairs::Product { sources, destinations } = ends else { return Ok(()) };
    let another = |source: &usize| destinations.iter().any(|destination| destination != source);
    let all = !sources.is_empty() && sources.iter().all(another);
    all.then_some(()).ok_or("a source has no destination except itself")
}

/// Expected number of arrivals.
fn arrivals(plan: &Plan, workload: &Workload, interarrival: Interarrival) -> f64 {
    let gap_ns = match interarrival {
        Interarrival::Exponential(mean) => mean.max(1.0),
        Interarrival::Fixed(gap) => gap as f64,
    };
    let end_ns = workload.stop_ns.unwrap_or(u64::MAX).min(plan.duration_ns);
    end_ns.saturating_sub(workload.start_ns) as f64 / gap_ns
}

#[cfg(test)]
mod tests {
    use crate::plan::workload::Pattern;
    use crate::plan::Qdisc;
    use crate::testing::{dumbbell, example, launch, refusal};
    use serde_json::{json, Value};

    fn with_launch(field: &str, value: Value) -> String {
        refusal(|plan| {
            let mut launch = launch();
            launch[field] = value;
            plan["launches"] = json!([launch]);
        })
    }

    #[test]
    fn the_documented_example_is_valid() {
        let plan = dumbbell(|_| {});
        assert_eq!(plan.nodes[0].routes[0].metrics.rto_min_ms, Some(10));
        assert!(
            matches!(&plan.queues[0].qdisc, Qdisc::Raw { kind, options, child: None } if kind == "pfifo" && options.0 == [0xe8, 3, 0, 0])
        );
        assert!(matches!(&plan.queues[1].qdisc, Qdisc::Tc(tc) if tc[0] == "fq_codel"));
        assert!(matches!(plan.workloads[1].pattern, Pattern::Arrivals { .. }));
        assert_eq!(plan.workloads[0].transport, "tcp");
    }

    #[test]
    fn errors_name_the_object() {
        for (message, expected) in [
            (refusal(|p| p["version"] = json!(2)), "version 2"),
            (refusal(|p| p["links"][0]["a"]["queue"] = json!(1)), "queue 1 is not its queue"),
            (refusal(|p| p["links"][0]["b"]["mac"] = json!("02:zz")), "is not a MAC address"),
            (
                refusal(|p| p["nodes"][0]["routes"][0]["via"][0]["interface"] = json!("eth9")),
                "no interface eth9",
            ),
            (refusal(|p| p["queues"][0]["qdisc"]["options"] = json!("e8z")), "hexadecimal"),
            (
                refusal(|p| p["captures"][0]["interface"] = json!("eth7")),
                "capture h1:eth0: no interface eth7",
            ),
            (refusal(|p| p["captures"][0]["snaplen"] = json!(0)), "capture h1:eth0: snaplen is 0"),
            (
                refusal(|p| p["nodes"][0]["sysctls"] = json!({"kernel/modprobe": "/mnt/x"})),
                "sysctl \"kernel/modprobe\" is not a path under /proc/sys/net",
            ),
            (refusal(|p| p["nodes"][0]["sysctls"] = json!({"net/../kernel/modprobe": "/mnt/x"})), "sysctl"),
            (refusal(|p| p["sysctls"] = json!({"net//core/x": "1"})), "sysctl"),
            (refusal(|p| p["nodes"][1]["folders"] = json!(["run"])), "\"run\" is not an absolute path"),
            (
                refusal(|p| p["nodes"][1]["programs"] = json!([{"argv": [], "optional": false}])),
                "a program has no name",
            ),
            (
                refusal(|p| p["events"] = json!([{"at_ns": 1, "link": 9, "state": "down"}])),
                "event 0: no link 9",
            ),
            (refusal(|p| p["surprise"] = json!(1)), "unknown field `surprise`"),
        ] {
            assert!(message.contains(expected), "{message:?} does not contain {expected:?}");
        }
    }

    #[test]
    fn errors_name_the_workload() {
        for (message, expected) in [
            (
                refusal(|p| p["workloads"][0]["pairs"] = json!([[0, 0]])),
                "workload 0 (bulk): node 0 is source and destination",
            ),
            (refusal(|p| p["workloads"][0]["pairs"] = json!([[0, 9]])), "workload 0 (bulk): no node 9"),
            (refusal(|p| p["workloads"][0]["each"] = json!([[0, 0]])), "a size in each is 0"),
            (refusal(|p| p["workloads"][0]["each"] = json!([[u64::MAX, 1]])), "is longer than"),
            (refusal(|p| p["workloads"][0]["family"] = json!(6)), "node h2 has no address of its family"),
            (
                refusal(|p| p["workloads"][1]["size"] = json!({"pareto": {"mean_bytes": 5, "shape": 1}})),
                "shape > 1",
            ),
            (
                refusal(|p| {
                    p["workloads"][1]["size"] =
                        json!({"pareto": {"mean_bytes": 60, "shape": 1.2, "max_bytes": 9}})
                }),
                "above its scale",
            ),
            (
                refusal(|p| {
                    p["workloads"][1]["sources"] = json!(vec![0; 3000]);
                    p["workloads"][1]["destinations"] = json!(vec![2; 3000]);
                    p["workloads"][1]["together"] = json!(true);
                }),
                "flows are more than",
            ),
            (refusal(|p| p["workloads"][1]["size"] = json!({"cdf": [[10, 0.5], [5, 1.0]]})), "does not rise"),
        ] {
            assert!(message.contains(expected), "{message:?} does not contain {expected:?}");
        }
    }

    #[test]
    fn errors_name_the_launch() {
        for (message, expected) in [
            (with_launch("node", json!(3)), "launch 0 (server): no node 3"),
            (with_launch("argv", json!([])), "launch 0 (server): the program has no name"),
            (with_launch("start_ns", json!(i64::MIN)), "launch 0: 9223372036854775808 ns is longer"),
            (with_launch("stop_ns", json!(u64::MAX)), "launch 0: 18446744073709551615 ns is longer"),
        ] {
            assert!(message.contains(expected), "{message:?} does not contain {expected:?}");
        }
    }

    #[test]
    fn errors_of_changes_and_windows() {
        for (message, expected) in [
            (
                refusal(|p| p["changes"] = json!([{"at_ns": 1, "link": {"link": 7, "end": "b"}}])),
                "change 0: no link 7",
            ),
            (
                refusal(|p| {
                    let qdisc = json!({"kind": "bfifo", "options": "00100000"});
                    p["changes"] = json!([{"at_ns": 1, "queue": {"queue": 0, "qdisc": qdisc}}]);
                }),
                "queue h1:eth0 has another kind of qdisc",
            ),
            (
                refusal(|p| {
                    p["changes"] = json!([{"at_ns": 1, "node": {"node": 1, "congestion_control": "bbr"}}]);
                }),
                "change 0: no host 1",
            ),
            (refusal(|p| p["changes"] = json!([{"at_ns": 1}])), "of a link, a queue or a node"),
            (
                refusal(|p| p["windows"] = json!([{"name": "w", "from_ns": 5, "until_ns": u64::MAX}])),
                "window w: 18446744073709551615 ns is longer",
            ),
            (
                refusal(|p| {
                    let window = |n: u64| json!({"name": "w", "from_ns": n, "until_ns": 1000});
                    p["windows"] = (0..64).map(window).collect();
                }),
                "65 instants",
            ),
        ] {
            assert!(message.contains(expected), "{message:?} does not contain {expected:?}");
        }
    }

    #[test]
    fn every_missing_field_is_refused() {
        for field in example().as_object().unwrap().keys() {
            let message = refusal(|plan| drop(plan.as_object_mut().unwrap().remove(field)));
            assert!(message.contains(field.as_str()), "{message}");
        }
    }
}
