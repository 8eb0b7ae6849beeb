// SPDX-License-Identifier: GPL-2.0-only
/* The arithmetic of qrate: pacing, losses, timeouts, received data, square roots. */
#include <string.h>

#include "qrate_arrivals.h"
#include "qrate_flight.h"
#include "qrate_pace.h"
#include "qrate_sqrt.h"
#include "qrate_rtt.h"
#include "unit.h"

/* Packet k is sent at t0 + round(bits before it / rate), for any length of the flow. */
static void pace_does_not_drift(u64 rate)
{
	struct qrate_pace pace = { .next_ns = 1000 };
	__uint128_t bits = 0;
	int i;

	for (i = 0; i < 100000 && pace.next_ns < 1ull << 62; i++) {
		u32 bytes = i % 2 ? 1500 : 1 + random_below(65535);

		bits += 8 * (u64)bytes;
		qrate_pace_sent(&pace, bytes, rate);
		EXPECT_EQUAL(pace.next_ns - 1000,
			     (u64)((bits * 2 * 1000000000 + rate) / ((__uint128_t)2 * rate)));
	}
}

/*
 * With a rate that changes for each packet, the error is at most the rounding
 * of the changes.
 */
static void pace_follows_a_rate(void)
{
	struct qrate_pace pace = {};
	int i;
	double exact = 0;

	for (i = 0; i < 100000; i++) {
		u64 rate = 1000000 + random_below(100000000000ull);

		exact += 1500 * 8e9 / rate;
		qrate_pace_sent(&pace, 1500, rate);
		EXPECT(pace.carry < pace.rate_bps);
	}
	EXPECT(pace.next_ns > exact - 2 && pace.next_ns < exact + 2);
}

static void pace_speeds_up(void)
{
	struct qrate_pace pace = { .next_ns = 0 };

	qrate_pace_sent(&pace, 1250, 10000);		/* a second */
	EXPECT_EQUAL(pace.next_ns, 1000000000);
	qrate_pace_speed_up(&pace, 200000000, 5000);	/* slower: the wait stays */
	EXPECT_EQUAL(pace.next_ns, 1000000000);
	qrate_pace_speed_up(&pace, 200000000, 80000);	/* the remaining wait is divided by eight */
	EXPECT_EQUAL(pace.next_ns, 300000000);
	qrate_pace_speed_up(&pace, 400000000, U64_MAX);	/* already expired */
	EXPECT_EQUAL(pace.next_ns, 300000000);
	qrate_pace_sent(&pace, 1250, 0);		/* a rate of 0 is treated as 1 */
	EXPECT_EQUAL(pace.next_ns, 300000000 + 10000 * 1000000000ull);
	qrate_pace_speed_up(&pace, 300000000, U64_MAX);
	EXPECT(pace.next_ns <= 300000000 + 1);
}

static struct qrate_flight flight_of(u32 packets)
{
	struct qrate_flight flight = { .packets = calloc(4, sizeof(struct qrate_packet)), .capacity = 4 };
	u32 i;

	for (i = 0; i < packets; i++) {
		if (qrate_flight_is_full(&flight))
			free(qrate_flight_grow(&flight,
					       calloc(2 * flight.capacity, sizeof(struct qrate_packet)),
					       2 * flight.capacity));
		EXPECT_EQUAL(qrate_flight_send(&flight, 100 * i, 100, i), i);
	}
	return flight;
}

static void a_packet_is_lost_three_packets_later(void)
{
	struct qrate_flight flight = flight_of(10);

	EXPECT_EQUAL(flight.bytes, 1000);
	EXPECT(qrate_flight_ack(&flight, 5));
	EXPECT(!qrate_flight_ack(&flight, 5));	/* again */
	EXPECT(!qrate_flight_ack(&flight, 10));	/* never sent */
	/* 3 and 4 were received, their acknowledgements lost */
	EXPECT_EQUAL(qrate_flight_ack_window(&flight, 5, 3), 200);
	EXPECT_EQUAL(qrate_flight_detect(&flight, 5, 0), 3);	/* 0, 1, 2; 0 is sent at 0, too */
	EXPECT_EQUAL(flight.bytes, 400);
	EXPECT_EQUAL(qrate_flight_first_lost(&flight)->offset, 0);
	flight.first++;	/* retransmitted */
	EXPECT(qrate_flight_ack(&flight, 1));	/* it was not lost */
	EXPECT_EQUAL(flight.bytes, 400);
	EXPECT_EQUAL(qrate_flight_first_lost(&flight)->offset, 200);
	flight.first++;
	EXPECT(!qrate_flight_first_lost(&flight));
	EXPECT_EQUAL(flight.first, 6);
	EXPECT(qrate_flight_ack(&flight, 8));
	EXPECT_EQUAL(qrate_flight_detect(&flight, 8, 0), 0);	/* 6 and 7 are below the packet
								 * threshold
								 */
	EXPECT_EQUAL(qrate_flight_detect(&flight, 8, 6), 1);	/* but 6 exceeds the time threshold */
	qrate_flight_mark_lost(&flight);
	qrate_flight_mark_lost(&flight);
	EXPECT_EQUAL(flight.bytes, 0);
	qrate_flight_mark_lost(&flight);	/* nothing is left */
	EXPECT_EQUAL(flight.bytes, 0);
	free(flight.packets);
}

/*
 * Random transmissions, acknowledgements, losses and retransmissions: each byte
 * is acknowledged once, and the flight is empty at the end.
 */
static void every_byte_is_acknowledged(void)
{
	struct qrate_flight flight = flight_of(1000);
	u64 now = 1000, acked = 0, number = 0;
	struct qrate_packet *packet;

	for (; !qrate_flight_is_empty(&flight); now++) {
		EXPECT(now < 10000);
		if (number == flight.next) {
			qrate_flight_mark_lost(&flight);	/* a timeout */
		} else if (random_below(3)) {
			packet = qrate_flight_ack(&flight, number);
			acked += packet ? packet->length : 0;
			acked += qrate_flight_ack_window(&flight, number, random_below(8));
			qrate_flight_detect(&flight, number++, now - 50);
		} else {
			number++;
		}
		while ((packet = qrate_flight_first_lost(&flight))) {
			u64 offset = packet->offset;

			flight.first++;
			qrate_flight_send(&flight, offset, 100, now);
		}
	}
	EXPECT_EQUAL(acked, 100000);
	EXPECT_EQUAL(flight.bytes, 0);
	free(flight.packets);
}

static void timeouts_double(void)
{
	struct qrate_rtt_params params = { .first_ns = 1000, .min_ns = 100 };
	struct qrate_rtt rtt = {};

	EXPECT_EQUAL(qrate_rtt_timeout_ns(&rtt, params), 1000);
	qrate_rtt_sample(&rtt, 0);
	EXPECT_EQUAL(qrate_rtt_timeout_ns(&rtt, params), 100);
	rtt = (struct qrate_rtt) {};
	qrate_rtt_sample(&rtt, 800);	/* smoothed 800, variation 400 */
	EXPECT_EQUAL(qrate_rtt_timeout_ns(&rtt, params), 2400);
	qrate_rtt_sample(&rtt, 1600);	/* 900, 500 */
	EXPECT_EQUAL(qrate_rtt_timeout_ns(&rtt, params), 2900);
	EXPECT_EQUAL(qrate_rtt_threshold_ns(&rtt), 1800);
	rtt.backoff = 3;
	EXPECT_EQUAL(qrate_rtt_timeout_ns(&rtt, params), 8 * 2900);
	EXPECT_EQUAL(rtt.min_ns, 800);
}

static void windows_contain_received_packets(void)
{
	struct qrate_window window_state = {};
	u8 received[3000] = {};
	int i;

	for (i = 0; i < 2000; i++) {
		u64 number = i + random_below(i % 100 ? 80 : 200), expected = 0, window;
		int bit;

		received[number] = 1;
		window = qrate_window_add(&window_state, number);
		for (bit = 0; bit < 64 && bit < (int)number; bit++) {
			/* unknown if further back than the current window */
			if (number - 1 - bit + 64 >= window_state.last)
				expected |= (u64)received[number - 1 - bit] << bit;
		}
		EXPECT_EQUAL(window, expected);
	}
}

static void bytes_count_once(void)
{
	struct qrate_interval room[2000];
	struct qrate_coverage coverage = { .intervals = room, .capacity = 2000 };
	static u8 received[20000];
	u64 total = 0;
	int i;
	u32 k;

	for (i = 0; i < 3000; i++) {
		u64 begin = random_below(19000), end = begin + 1 + random_below(30), added = 0, at;

		for (at = begin; at < end; at++) {
			added += !received[at];
			received[at] = 1;
		}
		total += added;
		EXPECT(!qrate_coverage_is_full(&coverage));
		EXPECT_EQUAL(qrate_coverage_add(&coverage, begin, end), added);
		EXPECT_EQUAL(coverage.bytes, total);
		for (k = 1; k < coverage.used; k++)
			EXPECT(room[k - 1].end < room[k].begin);
	}
	EXPECT_EQUAL(qrate_coverage_add(&coverage, 0, 20000), 20000 - total);
	EXPECT_EQUAL(coverage.used, 1);
}

static void roots_are_rounded_down(void)
{
	int i;

	EXPECT_EQUAL(qrate_sqrt(0, 0), 0);
	EXPECT_EQUAL(qrate_sqrt(0, 15), 3);
	EXPECT_EQUAL(qrate_sqrt(U64_MAX, U64_MAX), U64_MAX);
	EXPECT_EQUAL(qrate_sqrt(1, 0), 1ull << 32);
	for (i = 0; i < 10000; i++) {
		u64 root = random_u64() >> random_below(64);
		__uint128_t square = (__uint128_t)root * root;

		EXPECT_EQUAL(qrate_sqrt(square >> 64, square), root);
		if (root) {
			square--;
			EXPECT_EQUAL(qrate_sqrt(square >> 64, square), root - 1);
		}
	}
}

int main(void)
{
	static const u64 rates[] = {
		1, 7, 9600, 123456789, 9999999937ull, 10000000000ull, 400000000000ull,
		QRATE_MAX_BPS,
	};
	u32 i;

	for (i = 0; i < sizeof(rates) / sizeof(*rates); i++)
		pace_does_not_drift(rates[i]);
	pace_follows_a_rate();
	pace_speeds_up();
	a_packet_is_lost_three_packets_later();
	every_byte_is_acknowledged();
	timeouts_double();
	windows_contain_received_packets();
	bytes_count_once();
	roots_are_rounded_down();
	return PASS();
}
