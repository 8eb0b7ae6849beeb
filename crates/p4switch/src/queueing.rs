// SPDX-License-Identifier: Apache-2.0
//! The queues between ingress and egress as BMv2's simple_switch has them, for comparison with ours (docs/p4.md).
//!
//! A port has a queue for each priority. A queue is as long as its depth, in packets, and its rate is in packets a second:
//! a packet is given the instant at which it may leave when it comes, a period behind the one before it, whatever its
//! length. Four workers (port modulo 4) take, of the packets whose instant has come, one of the highest priority. Behind
//! egress all ports share a buffer, which no depth tells of, in front of the one thread that hands frames to interfaces.
//!
//! There they are threads; here each takes no time, and what is to happen at one instant happens in the order of workers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

pub const WORKERS: usize = 4;
/// Of simple_switch, unless it is told otherwise.
const DEPTH_PACKETS: usize = 64;
const BUFFER_FRAMES: usize = 128;
const NS_PER_S: f64 = 1e9;

/// What simple_switch takes on its command line, and what its interfaces are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Queues of a port, from 1 on: `--priority-queues`.
    pub priorities: u8,
    /// None: interfaces take a frame in no time.
    pub interface_bits_per_s: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { priorities: 1, interface_bits_per_s: None }
    }
}

/// Why a packet did not get into a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    Full { port: u16, priority: u8 },
    NoSuchPriority { priority: u8 },
}

/// Packets of one port and priority.
#[derive(Debug, Clone, Copy)]
struct Queue {
    packets: usize,
    depth: usize,
    period_ns: u64,
    /// When the packet that came last may leave; at first, when the queue was made.
    last_ns: u64,
}

struct Waiting<T> {
    due: Reverse<(u64, u64)>,
    port: u16,
    packet: T,
}

/// Packets `T` between ingress and egress.
pub struct Queues<T> {
    priorities: u8,
    /// Of queues that are made from now on, as simple_switch makes them: when they are first used or told of.
    depth: usize,
    period_ns: u64,
    ports: BTreeMap<u16, Vec<Queue>>,
    /// By worker and priority.
    waiting: Vec<Vec<BinaryHeap<Waiting<T>>>>,
    came: u64,
}

impl<T> Queues<T> {
    pub fn new(priorities: u8) -> Self {
        let heaps = || (0..priorities.max(1)).map(|_| BinaryHeap::new()).collect();
        Self {
            priorities: priorities.max(1),
            depth: DEPTH_PACKETS,
            period_ns: 0,
            ports: BTreeMap::new(),
            waiting: (0..WORKERS).map(|_| heaps()).collect(),
            came: 0,
        }
    }

    /// `set_queue_depth`: of all queues, of a port's, of one of them.
    pub fn set_depth(&mut self, packets: usize, port: Option<u16>, priority: Option<u8>, now_ns: u64) {
        if port.is_none() {
            self.depth = packets;
        }
        self.each(port, priority, now_ns, |queue| queue.depth = packets);
    }

    /// `set_queue_rate`, 0 for none; of packets that come from now on.
    pub fn set_rate(&mut self, packets_per_s: u64, port: Option<u16>, priority: Option<u8>, now_ns: u64) {
        let period_ns = period_ns(packets_per_s);
        if port.is_none() {
            self.period_ns = period_ns;
        }
        self.each(port, priority, now_ns, |queue| queue.period_ns = period_ns);
    }

    fn each(&mut self, port: Option<u16>, priority: Option<u8>, now_ns: u64, change: impl Fn(&mut Queue)) {
        if let Some(port) = port {
            self.port(port, now_ns);
        }
        let ports = self.ports.iter_mut().filter(|(number, _)| port.is_none_or(|port| port == **number));
        for (_, queues) in ports {
            let queues = queues.iter_mut().enumerate();
            queues
                .filter(|(index, _)| priority.is_none_or(|priority| usize::from(priority) == *index))
                .for_each(|(_, queue)| change(queue));
        }
    }

    fn port(&mut self, port: u16, now_ns: u64) -> &mut Vec<Queue> {
        let queue = Queue { packets: 0, depth: self.depth, period_ns: self.period_ns, last_ns: now_ns };
        let priorities = usize::from(self.priorities);
        self.ports.entry(port).or_insert_with(|| vec![queue; priorities])
    }

    /// Packets that wait at a port with this priority: what `enq_qdepth` and `deq_qdepth` say.
    pub fn length(&self, port: u16, priority: u8) -> usize {
        let queues = self.ports.get(&port);
        queues.and_then(|queues| queues.get(usize::from(priority))).map_or(0, |queue| queue.packets)
    }

    /// Gives back what does not fit, as it is.
    pub fn put(&mut self, port: u16, priority: u8, packet: T, now_ns: u64) -> Result<(), (Refused, T)> {
        let came = self.came;
        let Some(queue) = self.port(port, now_ns).get_mut(usize::from(priority)) else {
            return Err((Refused::NoSuchPriority { priority }, packet));
        };
        if queue.packets >= queue.depth {
            return Err((Refused::Full { port, priority }, packet));
        }
        queue.packets += 1;
        queue.last_ns = now_ns.max(queue.last_ns.saturating_add(queue.period_ns));
        let due = Reverse((queue.last_ns, came));
        self.came += 1;
        self.waiting[usize::from(port) % WORKERS][usize::from(priority)].push(Waiting { due, port, packet });
        Ok(())
    }

    /// When this worker has something to do next.
    pub fn next_ns(&self, worker: usize) -> Option<u64> {
        self.waiting[worker].iter().filter_map(|heap| Some(heap.peek()?.due.0 .0)).min()
    }

    /// What this worker takes now: port, priority, packet.
    pub fn take(&mut self, worker: usize, now_ns: u64) -> Option<(u16, u8, T)> {
        let due = |heap: &BinaryHeap<Waiting<T>>| heap.peek().is_some_and(|first| first.due.0 .0 <= now_ns);
        let priority = self.waiting[worker].iter().rposition(due)?;
        let Waiting { port, packet, .. } = self.waiting[worker][priority].pop()?;
        if let Some(queue) = self.ports.get_mut(&port).and_then(|queues| queues.get_mut(priority)) {
            queue.packets -= 1;
        }
        Some((port, priority as u8, packet))
    }
}

/// As simple_switch reckons it: in floating point, cut to whole nanoseconds.
fn period_ns(packets_per_s: u64) -> u64 {
    match packets_per_s {
        0 => 0,
        rate => (1.0 / rate as f64 * NS_PER_S) as u64,
    }
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl<T> Eq for Waiting<T> {}

impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Waiting<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

/// Between egress and the interfaces: nobody is told how much is in it.
pub struct Output<T> {
    bits_per_s: Option<u64>,
    buffer: VecDeque<(u16, u64, T)>,
    /// What a worker has made and finds no room for: it waits with it.
    held: [Option<(u16, u64, T)>; WORKERS],
    /// The frame that the thread has in its hand until the interface is free.
    in_hand: Option<(u16, u64, T)>,
    /// When an interface is done with its frame.
    free_ns: BTreeMap<u16, u64>,
}

impl<T> Output<T> {
    pub fn new(interface_bits_per_s: Option<u64>) -> Self {
        Self {
            bits_per_s: interface_bits_per_s,
            buffer: VecDeque::new(),
            held: [const { None }; WORKERS],
            in_hand: None,
            free_ns: BTreeMap::new(),
        }
    }

    /// Whether this worker waits until there is room.
    pub fn blocks(&self, worker: usize) -> bool {
        self.held[worker].is_some()
    }

    pub fn put(&mut self, worker: usize, port: u16, bytes: usize, frame: T) {
        let frame = (port, bytes as u64, frame);
        if self.buffer.len() < BUFFER_FRAMES {
            self.buffer.push_back(frame);
        } else {
            self.held[worker] = Some(frame);
        }
    }

    /// The frame that an interface begins to send now.
    pub fn take(&mut self, now_ns: u64) -> Option<T> {
        if self.in_hand.is_none() {
            self.in_hand = self.buffer.pop_front();
            let held = self.held.iter_mut().find_map(Option::take);
            self.buffer.extend(held);
        }
        if self.next_ns()? > now_ns {
            return None;
        }
        let (port, bytes, frame) = self.in_hand.take()?;
        if let Some(rate) = self.bits_per_s {
            let takes_ns = (u128::from(bytes) * 8 * 1_000_000_000).div_ceil(rate.max(1).into());
            self.free_ns.insert(port, now_ns.saturating_add(takes_ns.try_into().unwrap_or(u64::MAX)));
        }
        Some(frame)
    }

    /// When the interface is free that the thread waits for.
    pub fn next_ns(&self) -> Option<u64> {
        let (port, ..) = self.in_hand.as_ref()?;
        Some(self.free_ns.get(port).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// What leaves until nothing waits any more: when, by which port, of which priority, which packet.
    fn drained(queues: &mut Queues<u32>) -> Vec<(u64, u16, u8, u32)> {
        let mut left = Vec::new();
        while let Some(now_ns) = (0..WORKERS).filter_map(|worker| queues.next_ns(worker)).min() {
            for worker in 0..WORKERS {
                while let Some((port, priority, packet)) = queues.take(worker, now_ns) {
                    left.push((now_ns, port, priority, packet));
                }
            }
        }
        left
    }

    #[test]
    fn sixty_four_packets_fit_and_leave_at_once_unless_it_is_told_otherwise() {
        let mut queues = Queues::new(1);
        let fit = (0..100).filter(|packet| queues.put(1, 0, *packet, 7).is_ok()).count();
        assert_eq!((fit, queues.length(1, 0)), (64, 64));
        assert_eq!(queues.put(1, 0, 0, 7), Err((Refused::Full { port: 1, priority: 0 }, 0)));
        assert_eq!(queues.put(5, 0, 0, 7), Ok(()));
        let left = drained(&mut queues);
        assert_eq!((left.len(), queues.length(1, 0)), (65, 0));
        assert!(left.iter().zip(0..64).all(|(left, packet)| *left == (7, 1, 0, packet)));
    }

    #[test]
    fn a_rate_is_a_period_between_packets_of_any_length_and_nothing_is_saved_up() {
        let mut queues = Queues::new(1);
        queues.set_rate(100, Some(1), None, 0);
        for packet in 0..3 {
            queues.put(1, 0, packet, 25 * MS).unwrap();
        }
        queues.put(1, 0, 3, 100 * MS).unwrap();
        let times: Vec<u64> = drained(&mut queues).iter().map(|left| left.0 / MS).collect();
        assert_eq!(times, [25, 35, 45, 100]);
        assert_eq!((period_ns(3), period_ns(8256), period_ns(0)), (333_333_333, 121_124, 0));
    }

    /// A queue counts its first period from when it was made: at its first packet, if nobody told of it before.
    #[test]
    fn the_first_packet_of_a_queue_that_all_rates_were_set_for_waits_a_period() {
        let mut queues = Queues::new(1);
        queues.set_rate(100, None, None, 0);
        queues.put(1, 0, 0, 25 * MS).unwrap();
        assert_eq!(drained(&mut queues), [(35 * MS, 1, 0, 0)]);
    }

    #[test]
    fn a_rate_holds_for_what_comes_and_a_depth_at_once() {
        let mut queues = Queues::new(1);
        queues.set_rate(100, Some(1), None, 0);
        (0..3).for_each(|packet| queues.put(1, 0, packet, 10 * MS).unwrap());
        queues.set_rate(0, Some(1), None, 10 * MS);
        queues.set_depth(4, Some(1), None, 10 * MS);
        assert_eq!(queues.put(1, 0, 3, 11 * MS), Ok(()));
        assert!(queues.put(1, 0, 4, 11 * MS).is_err());
        let times: Vec<u64> = drained(&mut queues).iter().map(|left| left.0 / MS).collect();
        assert_eq!(times, [10, 20, 30, 30], "no packet overtakes");
    }

    #[test]
    fn the_highest_priority_first_and_the_next_where_its_rate_has_it_wait() {
        let mut queues = Queues::new(3);
        queues.set_rate(100, Some(1), Some(2), 0);
        for (packet, priority) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 1)] {
            queues.put(1, priority, packet, 10 * MS).unwrap();
        }
        assert_eq!(queues.put(1, 3, 9, 0), Err((Refused::NoSuchPriority { priority: 3 }, 9)));
        assert_eq!((queues.length(1, 2), queues.length(1, 1), queues.length(1, 0)), (2, 2, 1));
        let left: Vec<(u64, u32)> =
            drained(&mut queues).iter().map(|(now, .., packet)| (now / MS, *packet)).collect();
        assert_eq!(left, [(10, 2), (10, 1), (10, 4), (10, 0), (20, 3)]);
    }

    #[test]
    fn ports_of_one_worker_are_served_by_when_their_packets_may_leave() {
        let mut queues = Queues::new(1);
        queues.set_rate(100, Some(1), None, 0);
        (0..2).for_each(|packet| queues.put(1, 0, packet, 10 * MS).unwrap());
        (2..4).for_each(|packet| queues.put(5, 0, packet, 15 * MS).unwrap());
        let left: Vec<u32> = drained(&mut queues).iter().map(|left| left.3).collect();
        assert_eq!(left, [0, 2, 3, 1]);
    }

    #[test]
    fn behind_egress_wait_one_in_hand_128_in_the_buffer_and_one_with_its_worker() {
        let mut output = Output::new(Some(1000));
        let mut put = 0;
        while !output.blocks(1) {
            output.put(1, 1, 125, put); // a second each
            put += 1;
            while output.take(0).is_some() {}
        }
        assert_eq!(put, 1 + 1 + 128 + 1);
        assert_eq!((output.next_ns(), output.take(999_999_999)), (Some(1_000_000_000), None));
        assert_eq!(output.take(1_000_000_000), Some(1));
        assert!(output.take(1_000_000_000).is_none() && !output.blocks(1));
    }

    #[test]
    fn a_frame_for_a_busy_interface_is_in_the_way_of_all_others() {
        let mut output = Output::new(Some(1000));
        for (port, frame) in [(1, 0), (1, 1), (2, 2)] {
            output.put(1, port, 125, frame);
        }
        assert_eq!((output.take(0), output.take(0)), (Some(0), None));
        let second = 1_000_000_000;
        assert_eq!((output.take(second), output.take(second), output.take(second)), (Some(1), Some(2), None));
    }

    proptest::proptest! {
        /// Against the rule by itself: each queue alone, packet by packet.
        #[test]
        fn fuzz_each_packet_leaves_when_its_queue_says(
            rates in proptest::collection::vec(0_u64..2000, 3),
            depth in 1_usize..10,
            gaps in proptest::collection::vec((0_u64..3 * MS, 0_u16..3), 1..60),
        ) {
            let mut queues = Queues::new(1);
            queues.set_depth(depth, None, None, 0);
            for (port, rate) in (0..).zip(&rates) {
                queues.set_rate(*rate, Some(port), None, 0);
            }
            let (mut now, mut expected, mut left) = (0, vec![Vec::new(); 3], vec![Vec::new(); 3]);
            let mut free = [0_u64; 3];
            for (packet, (gap, port)) in (0..).zip(&gaps) {
                now += gap;
                for worker in 0..WORKERS {
                    while let Some((port, _, packet)) = queues.take(worker, now) {
                        left[usize::from(port)].push(packet);
                    }
                }
                let at = usize::from(*port);
                let waits = expected[at].iter().filter(|(_, due)| *due > now).count();
                proptest::prop_assert_eq!(queues.length(*port, 0), waits);
                if queues.put(*port, 0, packet, now).is_ok() {
                    free[at] = now.max(free[at] + period_ns(rates[at]));
                    expected[at].push((packet, free[at]));
                } else {
                    proptest::prop_assert_eq!(waits, depth);
                }
            }
            for (_, port, _, packet) in drained(&mut queues) {
                left[usize::from(port)].push(packet);
            }
            let order: Vec<Vec<u32>> =
                expected.iter().map(|port| port.iter().map(|(packet, _)| *packet).collect()).collect();
            proptest::prop_assert_eq!(left, order);
        }
    }
}
