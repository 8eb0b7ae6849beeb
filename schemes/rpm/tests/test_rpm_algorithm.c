// SPDX-License-Identifier: GPL-2.0-only
/* The registers: counting, holders, and consistency of the counters. */
#include "rpm_algorithm.h"
#include "unit.h"

#define FLOW 77u
#define OTHER 78u

static const struct rpm_params params = { .reverse_timeout_ns = 1000 };
static char port_a, port_b;

static enum rpm_path decide(struct rpm_register *reg, u32 signature, u64 now_ns)
{
	return rpm_on_congestion(&params, reg, signature, &port_a, now_ns);
}

static enum rpm_verdict ack(struct rpm_register *reg, u32 signature, u64 now_ns)
{
	return rpm_on_ack(&params, reg, signature, RPM_ACK, now_ns).verdict;
}

static void every_decision_marks_one_acknowledgement(void)
{
	struct rpm_register reg = {};

	EXPECT_EQUAL(ack(&reg, FLOW, 100), RPM_PASS);
	EXPECT_EQUAL(decide(&reg, FLOW, 101), RPM_REVERSE);
	EXPECT_EQUAL(decide(&reg, FLOW, 102), RPM_REVERSE);
	EXPECT_EQUAL(decide(&reg, FLOW, 103), RPM_REVERSE);
	EXPECT_EQUAL(reg.pending, 3);
	EXPECT_EQUAL(ack(&reg, FLOW, 110), RPM_MARK);
	EXPECT_EQUAL(ack(&reg, FLOW, 111), RPM_MARK);
	EXPECT_EQUAL(decide(&reg, FLOW, 112), RPM_REVERSE);
	EXPECT_EQUAL(ack(&reg, FLOW, 113), RPM_MARK);
	EXPECT_EQUAL(ack(&reg, FLOW, 114), RPM_MARK);
	EXPECT_EQUAL(ack(&reg, FLOW, 115), RPM_PASS);
}

static void without_acknowledgements_the_mark_goes_forward(void)
{
	struct rpm_register reg = {};

	EXPECT_EQUAL(decide(&reg, FLOW, 0), RPM_FORWARD);
	EXPECT_EQUAL(decide(&reg, RPM_ANY_FLOW, 0), RPM_FORWARD);
	ack(&reg, FLOW, 100);
	EXPECT_EQUAL(decide(&reg, FLOW, 1100), RPM_REVERSE);	/* just within the timeout */
	EXPECT_EQUAL(decide(&reg, FLOW, 1101), RPM_FORWARD);
	EXPECT_EQUAL(reg.pending, 1);
	EXPECT_EQUAL(ack(&reg, FLOW, 5000), RPM_MARK);		/* pending decisions are kept */
	EXPECT_EQUAL(decide(&reg, FLOW, 5001), RPM_REVERSE);
}

static void a_register_serves_one_flow_at_a_time(void)
{
	struct rpm_register reg = {};
	struct rpm_arrival arrival;

	ack(&reg, FLOW, 100);
	EXPECT_EQUAL(decide(&reg, FLOW, 101), RPM_REVERSE);
	EXPECT_EQUAL(decide(&reg, OTHER, 102), RPM_COLLISION);
	EXPECT_EQUAL(ack(&reg, OTHER, 103), RPM_PASS);		/* no signal of another flow */
	EXPECT_EQUAL(reg.signature, FLOW);
	EXPECT_EQUAL(reg.reverse_ns, 100);			/* nor does it refresh the holder */

	/* the holder's timeout has expired */
	EXPECT_EQUAL(ack(&reg, OTHER, 1100), RPM_PASS);
	EXPECT_EQUAL(reg.signature, FLOW);
	arrival = rpm_on_ack(&params, &reg, OTHER, RPM_ACK, 1101);
	EXPECT_EQUAL(arrival.verdict, RPM_PASS);
	EXPECT_EQUAL(arrival.cleared, 1);
	EXPECT(arrival.port == &port_a);
	EXPECT_EQUAL(reg.signature, OTHER);
	EXPECT_EQUAL(decide(&reg, OTHER, 1102), RPM_REVERSE);
	EXPECT_EQUAL(decide(&reg, FLOW, 1102), RPM_COLLISION);
}

static void a_new_connection_begins_at_zero(void)
{
	struct rpm_register reg = {};
	struct rpm_arrival arrival;

	ack(&reg, FLOW, 100);
	decide(&reg, FLOW, 101);
	decide(&reg, FLOW, 102);
	arrival = rpm_on_ack(&params, &reg, FLOW, RPM_ACK_OPENS, 103);
	EXPECT_EQUAL(arrival.verdict, RPM_PASS);
	EXPECT_EQUAL(arrival.cleared, 2);
	EXPECT_EQUAL(ack(&reg, FLOW, 104), RPM_PASS);

	/* other flows of the port continue; still, a SYN-ACK carries nothing */
	reg = (struct rpm_register) {};
	ack(&reg, RPM_ANY_FLOW, 100);
	decide(&reg, RPM_ANY_FLOW, 101);
	arrival = rpm_on_ack(&params, &reg, RPM_ANY_FLOW, RPM_ACK_OPENS, 103);
	EXPECT_EQUAL(arrival.verdict, RPM_PASS);
	EXPECT_EQUAL(arrival.cleared, 0);
	EXPECT_EQUAL(ack(&reg, RPM_ANY_FLOW, 104), RPM_MARK);
}

static void ports_do_not_mix(void)
{
	struct rpm_register reg = {};

	ack(&reg, FLOW, 100);
	EXPECT_EQUAL(rpm_on_congestion(&params, &reg, FLOW, &port_a, 101), RPM_REVERSE);
	EXPECT_EQUAL(rpm_on_congestion(&params, &reg, FLOW, &port_b, 102), RPM_FORWARD);
	EXPECT_EQUAL(ack(&reg, FLOW, 103), RPM_MARK);
	EXPECT_EQUAL(rpm_on_congestion(&params, &reg, FLOW, &port_b, 104), RPM_REVERSE);
	EXPECT(reg.port == &port_b);
}

/* Otherwise the ended flow would hold it for reverse_timeout. */
static void a_flow_that_has_ended_holds_no_register(void)
{
	struct rpm_register reg = {};
	struct rpm_arrival arrival;

	ack(&reg, FLOW, 100);
	decide(&reg, FLOW, 101);
	decide(&reg, FLOW, 102);
	rpm_on_fin(&reg, OTHER);				/* not the holder */
	EXPECT_EQUAL(decide(&reg, OTHER, 103), RPM_COLLISION);
	rpm_on_fin(&reg, FLOW);
	EXPECT_EQUAL(ack(&reg, FLOW, 104), RPM_MARK);		/* its last data is still acknowledged */
	EXPECT_EQUAL(decide(&reg, FLOW, 105), RPM_REVERSE);	/* for example a retransmission */
	EXPECT_EQUAL(decide(&reg, OTHER, 106), RPM_FORWARD);	/* no acknowledgement of it was seen */
	arrival = rpm_on_ack(&params, &reg, OTHER, RPM_ACK, 107);
	EXPECT_EQUAL(arrival.verdict, RPM_PASS);
	EXPECT_EQUAL(arrival.cleared, 2);
	EXPECT_EQUAL(decide(&reg, OTHER, 108), RPM_REVERSE);
	EXPECT_EQUAL(ack(&reg, FLOW, 109), RPM_PASS);		/* the other flow holds it now */
	EXPECT_EQUAL(decide(&reg, FLOW, 110), RPM_COLLISION);

	/* RST: no further acknowledgements */
	EXPECT_EQUAL(rpm_on_end(&reg, FLOW), 0);
	EXPECT_EQUAL(rpm_on_end(&reg, OTHER), 1);
	EXPECT_EQUAL(decide(&reg, OTHER, 111), RPM_FORWARD);
	EXPECT_EQUAL(ack(&reg, FLOW, 112), RPM_PASS);
	EXPECT_EQUAL(decide(&reg, FLOW, 113), RPM_REVERSE);
}

/*
 * A SYN-ACK acknowledges one direction. The register of the other direction is
 * cleared by the segment that opens it: the SYN, or the SYN-ACK as a segment of
 * that flow.
 */
static void reused_ports_do_not_inherit_decisions(void)
{
	struct rpm_register client = {}, server = {};	/* registers of the client's and the server's data */

	ack(&client, FLOW, 100);
	ack(&server, OTHER, 100);
	decide(&client, FLOW, 101);
	decide(&server, OTHER, 101);
	rpm_on_fin(&client, FLOW);

	EXPECT_EQUAL(rpm_on_end(&client, FLOW), 1);		/* SYN */
	EXPECT_EQUAL(rpm_on_end(&server, OTHER), 1);		/* SYN-ACK */
	EXPECT_EQUAL(rpm_on_ack(&params, &client, FLOW, RPM_ACK_OPENS, 110).verdict, RPM_PASS);
	EXPECT_EQUAL(ack(&server, OTHER, 111), RPM_PASS);		/* third segment of the handshake */
	EXPECT_EQUAL(ack(&client, FLOW, 112), RPM_PASS);
	EXPECT(!client.closing);
	EXPECT_EQUAL(decide(&client, FLOW, 113), RPM_REVERSE);
	EXPECT_EQUAL(decide(&client, OTHER, 114), RPM_COLLISION);
}

/* An acknowledgement that carries a port's decision still refreshes the register. */
static void a_taken_acknowledgement_refreshes_the_register(void)
{
	struct rpm_register reg = {};

	ack(&reg, FLOW, 100);
	decide(&reg, FLOW, 101);
	EXPECT_EQUAL(rpm_on_ack(&params, &reg, FLOW, RPM_ACK_TAKEN, 1000).verdict, RPM_PASS);
	EXPECT_EQUAL(reg.pending, 1);
	EXPECT_EQUAL(decide(&reg, FLOW, 2000), RPM_REVERSE);
	EXPECT_EQUAL(ack(&reg, FLOW, 2001), RPM_MARK);
}

static void with_one_bit_decisions_until_the_next_acknowledgement_are_one(void)
{
	const struct rpm_params one_bit = { .reverse_timeout_ns = 1000, .counter = RPM_COUNTER_BIT };
	struct rpm_register reg = {};

	EXPECT_EQUAL(rpm_on_congestion(&one_bit, &reg, FLOW, &port_a, 99), RPM_FORWARD);
	ack(&reg, FLOW, 100);
	EXPECT_EQUAL(rpm_on_congestion(&one_bit, &reg, FLOW, &port_a, 101), RPM_REVERSE);
	EXPECT_EQUAL(rpm_on_congestion(&one_bit, &reg, FLOW, &port_a, 102), RPM_MERGED);
	EXPECT_EQUAL(rpm_on_congestion(&one_bit, &reg, FLOW, &port_b, 103), RPM_FORWARD);
	EXPECT_EQUAL(rpm_on_congestion(&one_bit, &reg, OTHER, &port_a, 104), RPM_COLLISION);
	EXPECT_EQUAL(reg.pending, 1);
	EXPECT_EQUAL(ack(&reg, FLOW, 105), RPM_MARK);
	EXPECT_EQUAL(ack(&reg, FLOW, 106), RPM_PASS);
	EXPECT_EQUAL(rpm_on_congestion(&one_bit, &reg, FLOW, &port_a, 107), RPM_REVERSE);
}

static void positions_and_signatures(void)
{
	EXPECT_EQUAL(rpm_position(0x123456789abcdef0ull, 65536), 0xdef0);
	EXPECT_EQUAL(rpm_position(0x123456789abcdef0ull, 1), 0);
	EXPECT_EQUAL(rpm_signature(0x123456789abcdef0ull), 0x12345678);
	EXPECT_EQUAL(rpm_signature(0xffffffffull), 2);		/* 0 and 1 are reserved */
	EXPECT_EQUAL(rpm_signature(0x1ffffffffull), 2);
}

/* For random events: reversed = carried + cleared + pending, and waiting times add up. */
static void counters_are_consistent(void)
{
	enum { FLOWS = 5, REGISTERS = 4 };
	struct rpm_register registers[REGISTERS] = {};
	u64 reversed = 0, carried = 0, cleared = 0, pending = 0;
	s64 difference_ns = 0;
	struct rpm_stats stats = {};
	u64 changed_ns = 0;
	u64 now_ns = 0;
	int step, i;

	for (step = 0; step < 200000; step++) {
		u32 flow = random_below(FLOWS);
		struct rpm_register *reg = &registers[rpm_position(flow * 7, REGISTERS)];

		now_ns += random_below(step % 1000 ? 20 : 5000);
		rpm_stats_advance(&stats, &changed_ns, now_ns);
		if (!random_below(20)) {
			rpm_on_fin(reg, 10 + flow);
		} else if (!random_below(20)) {
			u32 discarded = rpm_on_end(reg, 10 + flow);

			cleared += discarded;
			stats.pending -= discarded;
			difference_ns += discarded * now_ns;
		} else if (random_below(2)) {
			if (decide(reg, 10 + flow, now_ns) == RPM_REVERSE) {
				reversed++;
				stats.pending++;
				difference_ns -= now_ns;
			}
		} else {
			enum rpm_ack kind = random_below(50) ? RPM_ACK : RPM_ACK_OPENS;
			struct rpm_arrival arrival = rpm_on_ack(&params, reg, 10 + flow, kind,
								now_ns);
			u32 discarded = arrival.cleared + (arrival.verdict == RPM_MARK);

			carried += arrival.verdict == RPM_MARK;
			cleared += arrival.cleared;
			stats.pending -= discarded;
			difference_ns += discarded * now_ns;
		}
	}
	for (i = 0; i < REGISTERS; i++)
		pending += registers[i].pending;
	EXPECT(carried > 1000);
	EXPECT(cleared > 1000);
	EXPECT_EQUAL(reversed, carried + cleared + pending);
	EXPECT_EQUAL(stats.pending, pending);
	EXPECT_EQUAL(stats.pending_time_ns, difference_ns + pending * now_ns);
}

int main(void)
{
	every_decision_marks_one_acknowledgement();
	without_acknowledgements_the_mark_goes_forward();
	a_register_serves_one_flow_at_a_time();
	a_new_connection_begins_at_zero();
	ports_do_not_mix();
	a_flow_that_has_ended_holds_no_register();
	reused_ports_do_not_inherit_decisions();
	a_taken_acknowledgement_refreshes_the_register();
	with_one_bit_decisions_until_the_next_acknowledgement_are_one();
	positions_and_signatures();
	counters_are_consistent();
	return PASS();
}
