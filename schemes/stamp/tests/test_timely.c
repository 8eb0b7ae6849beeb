// SPDX-License-Identifier: GPL-2.0-only
/*
 * Timely: the lines of Algorithm 1, occupancies converted to time, and
 * agreement with a floating-point model.
 */
#include "timely.h"
#include "unit.h"

#define GBPS 1000000000ull
#define US 1000ull

static const struct timely_params defaults = TIMELY_DEFAULTS;

/* A completion event with an RTT. */
static u64 event(struct timely_state *state, const struct timely_params *params, u64 rtt_ns)
{
	const struct rate_ack ack = { .rtt_ns = rtt_ns, .bytes = params->segment_bytes };

	timely_on_ack(state, params, &ack);
	return timely_rate(state, params);
}

static u64 event_of_signal(struct timely_state *state, const struct timely_params *params, u8 kind,
			   u8 unit, u64 signal)
{
	const struct rate_ack ack = {
		.rtt_ns = 77 * US,
		.signal = signal,
		.bytes = params->segment_bytes,
		.has_signal = true,
		.kind = kind,
		.unit = unit,
	};

	timely_on_ack(state, params, &ack);
	return timely_rate(state, params);
}

static struct timely_state started(const struct timely_params *params)
{
	struct timely_state state;

	timely_start(&state, params, 0);
	return state;
}

static void below_t_low_the_rate_rises_by_delta(void)
{
	struct timely_params params = defaults;
	struct timely_state state;

	params.start_rate_bps = GBPS;
	state = started(&params);
	EXPECT_EQUAL(timely_rate(&state, &params), GBPS);
	EXPECT_EQUAL(event(&state, &params, 20 * US), GBPS + 10000000);
	EXPECT_EQUAL(event(&state, &params, 50 * US - 1), GBPS + 20000000);	/* for any gradient */
	params.max_rate_bps = GBPS + 25000000;
	EXPECT_EQUAL(event(&state, &params, 20 * US), GBPS + 25000000);
}

static void above_t_high_it_falls_by_the_excess(void)
{
	struct timely_state state = started(&defaults);
	u32 i;

	/* 10 Gbit/s x (1 - 0.8 x (1 - 200/400)) */
	EXPECT_EQUAL(event(&state, &defaults, 400 * US) / 100000, 60000);
	EXPECT_EQUAL(event(&state, &defaults, 400 * US) / 100000, 36000);
	for (i = 0; i < 100; i++)
		event(&state, &defaults, 400 * US);
	EXPECT_EQUAL(timely_rate(&state, &defaults), defaults.min_rate_bps);
}

static void between_them_it_follows_the_gradient(void)
{
	struct timely_params params = defaults;
	struct timely_state state;
	u32 i;

	params.alpha = RATE_ONE / 2;
	params.start_rate_bps = GBPS;
	state = started(&params);
	EXPECT_EQUAL(event(&state, &params, 100 * US), GBPS + 10000000);	/* the first event
										 * has no difference
										 */
	/* 4 us more, weight 1/2: 2/20; 0.8 of that */
	EXPECT_EQUAL(event(&state, &params, 104 * US) / 100000, 1010 * 92 / 10);
	/* (2 - 6)/2 = -2 us */
	EXPECT_EQUAL(event(&state, &params, 98 * US) / 100000, 9292 + 100);
	/* hyperactive increase: the fifth such event in a row */
	for (i = 0; i < 3; i++)
		event(&state, &params, 98 * US);
	EXPECT_EQUAL(state.rate_bps / 100000, 9392 + 300);
	EXPECT_EQUAL(event(&state, &params, 98 * US) / 100000, 9692 + 500);
	EXPECT_EQUAL(event(&state, &params, 98 * US) / 100000, 10192 + 500);
	/* any other event ends the sequence */
	event(&state, &params, 49 * US);
	EXPECT_EQUAL(event(&state, &params, 50 * US) / 100000, 10692 + 200);
}

static void an_event_is_due_after_a_segment(void)
{
	struct timely_state state = started(&defaults);
	struct rate_ack ack = { .rtt_ns = 400 * US, .bytes = 1500 };
	u32 i;

	for (i = 0; i < 10; i++)
		timely_on_ack(&state, &defaults, &ack);
	EXPECT_EQUAL(state.rate_bps, 10 * GBPS);	/* 15,000 bytes of 16,000 */
	timely_on_ack(&state, &defaults, &ack);
	EXPECT_EQUAL(state.rate_bps / 100000, 60000);
	for (i = 0; i < 10; i++)
		timely_on_ack(&state, &defaults, &ack);
	EXPECT_EQUAL(state.rate_bps / 100000, 60000);	/* 500 bytes remained */
	ack.rtt_ns = 20 * US;				/* the last acknowledged packet provides the
							 * signal
							 */
	timely_on_ack(&state, &defaults, &ack);
	EXPECT_EQUAL(state.rate_bps / 100000, 60100);
}

/* 300,000 bytes at 10 Gbit/s are 240 us in any unit: reduction by 0.8 x (1 - 180/240). */
static void an_occupancy_is_time(void)
{
	static const struct {
		u8 kind, unit;
		u64 signal;
	} full[] = {
		{ QSIGNAL_SUM, QSIGNAL_NS, 240 * US },
		{ QSIGNAL_SUM_SQU, QSIGNAL_BYTES, 300000 },
		{ QSIGNAL_MAX, QSIGNAL_PACKETS, 200 },
		{ QSIGNAL_IND, QSIGNAL_PACKETS, 1 },
	};
	struct timely_params params = defaults;
	struct timely_state state;
	u32 i;

	params.packet_bytes = 1500;
	for (i = 0; i < sizeof(full) / sizeof(*full); i++) {
		u8 kind = full[i].kind, unit = full[i].unit;

		state = started(&params);
		EXPECT_EQUAL(event_of_signal(&state, &params, kind, unit, full[i].signal) / 100000, 80000);
		EXPECT_EQUAL(event_of_signal(&state, &params, kind, unit, 0) / 100000, 80100);
		/* limited to the maximum; times 1500 it would overflow to 0 */
		event_of_signal(&state, &params, kind, unit, 1ull << 63);
		EXPECT_EQUAL(state.rate_bps / 100000000, kind == QSIGNAL_IND ? 64 : 16);
	}
	/*
	 * T_low contains no propagation delay: 31 us of queue are above it, an RTT of 31 us is
	 * below
	 */
	state = started(&params);
	event_of_signal(&state, &params, QSIGNAL_MAX, QSIGNAL_NS, 31 * US);
	EXPECT_EQUAL(state.falling, 1);
	event(&state, &params, 31 * US);
	EXPECT_EQUAL(state.falling, 0);
}

static void without_the_requested_signal_the_rate_stays(void)
{
	struct timely_params params = defaults;
	struct rate_ack ack = { .rtt_ns = 900 * US, .bytes = 64000, .kind = QSIGNAL_MAX };
	struct timely_state state;

	params.start_rate_bps = GBPS;
	state = started(&params);
	timely_on_ack(&state, &params, &ack);
	EXPECT_EQUAL(state.rate_bps, GBPS);
	ack.has_signal = true;
	timely_on_ack(&state, &params, &ack);
	EXPECT_EQUAL(state.rate_bps, GBPS + params.delta_bps);
}

static void only_packets_sent_after_a_decrease_decrease_again(void)
{
	struct timely_params params = defaults;
	struct rate_ack ack = { .now_ns = 1000 * US, .rtt_ns = 400 * US, .bytes = 16000 };
	struct timely_state state;

	params.fresh = 1;
	state = started(&params);
	timely_on_ack(&state, &params, &ack);
	EXPECT_EQUAL(state.rate_bps / 100000, 60000);
	ack.now_ns = 1399 * US;
	timely_on_ack(&state, &params, &ack);
	EXPECT_EQUAL(state.rate_bps / 100000, 60000);
	ack.now_ns = 1400 * US;		/* sent when the rate fell */
	timely_on_ack(&state, &params, &ack);
	EXPECT_EQUAL(state.rate_bps / 100000, 36000);
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

static double distance(double a, double b)
{
	return a > b ? a - b : b - a;
}

/* Algorithm 1 in floating point. */
struct model {
	double rate, last, difference;
	bool begun;
	u32 row;
};

static void model_event(struct model *model, const struct timely_params *params, double rtt)
{
	double alpha = (double)params->alpha / RATE_ONE, beta = (double)params->beta / RATE_ONE;
	double low = params->min_rtt_ns + params->q_low_ns, high = params->min_rtt_ns + params->q_high_ns;
	double gradient;

	model->difference = (1 - alpha) * model->difference + alpha * (model->begun ? rtt - model->last : 0);
	model->last = rtt;
	model->begun = true;
	gradient = model->difference / params->min_rtt_ns;
	if (rtt >= low && rtt <= high && gradient <= 0)
		model->row++;
	else
		model->row = 0;
	if (rtt < low)
		model->rate += params->delta_bps;
	else if (rtt > high)
		model->rate *= 1 - beta * (1 - high / rtt);
	else if (gradient <= 0)
		model->rate += (double)(model->row >= params->hai ? params->hai : 1) * params->delta_bps;
	else
		model->rate *= 1 - beta * gradient;
	model->rate = larger(model->rate, params->min_rate_bps);
	if (model->rate > params->max_rate_bps)
		model->rate = params->max_rate_bps;
}

static void random_path(struct timely_params *params)
{
	*params = defaults;
	params->max_rate_bps = GBPS + random_below(399 * GBPS);
	params->start_rate_bps = params->max_rate_bps / (1 + random_below(10));
	params->min_rate_bps = 1000000 + random_below(params->start_rate_bps - 1000000);
	params->delta_bps = 1000000 + random_below(GBPS);
	params->alpha = 1 + random_below(RATE_ONE);
	params->beta = random_below(RATE_ONE + 1);
	params->hai = 1 + random_below(10);
	params->min_rtt_ns = 1000 + random_below(1000 * US);
	params->q_low_ns = random_below(500 * US);
	params->q_high_ns = params->q_low_ns + random_below(2000 * US);
}

/*
 * After 50 events from the same start: 1e-4 of the rate, and 1/256 ns per event
 * in the average of differences. If that is below 1 ns, rounding may take
 * another branch than the model, which is then resynchronized; this affects few
 * events.
 */
static void it_agrees_with_the_model(void)
{
	double worst = 0, worst_difference = 0;
	u32 trial, i, followed = 0, events = 0;

	for (trial = 0; trial < 20000; trial++) {
		struct timely_params params;
		struct timely_state state;
		struct model model = {};
		u64 rtt_ns;

		random_path(&params);
		rtt_ns = params.min_rtt_ns + random_below(params.q_high_ns + 1);
		state = started(&params);
		model.rate = params.start_rate_bps;
		for (i = 0; i < 50; i++) {
			u64 change_ns = random_below(params.min_rtt_ns);

			rtt_ns = random_below(2) && rtt_ns > params.min_rtt_ns + change_ns ?
				rtt_ns - change_ns : rtt_ns + change_ns;
			event(&state, &params, rtt_ns);
			model_event(&model, &params, rtt_ns);
			if (distance(0, model.difference) < 1) {
				model.rate = state.rate_bps;
				model.row = state.falling;
				followed++;
			}
			worst = larger(worst, distance(state.rate_bps, model.rate) / model.rate);
			worst_difference = larger(worst_difference,
						  distance(model.difference,
							   (double)state.change_fine / TIMELY_FINE));
			events++;
		}
	}
	printf("timely: %u events, maximum relative error of the rate %.1e, maximum error of the difference %.1e ns\n",
	       events, worst, worst_difference);
	EXPECT(worst < 1e-4);
	EXPECT(worst_difference < 50.0 / TIMELY_FINE);
	EXPECT(followed < events / 20);
}

/* Random numbers of all orders of magnitude up to @max. */
static u64 random_magnitude(u64 max)
{
	return (random_u64() >> random_below(64)) % (max + 1);
}

/*
 * One event with parameters at the bounds of their ranges, where a product
 * could overflow 64 bits.
 */
static void nothing_overflows(void)
{
	u32 i;

	for (i = 0; i < 2000000; i++) {
		struct timely_params params = defaults;
		struct timely_state state = { .begun = true, .last_ns = random_magnitude(TIMELY_MAX_NS) };
		struct model model = { .begun = true, .last = state.last_ns };
		u64 sample_ns = random_magnitude(TIMELY_MAX_NS);
		double before = 1000 + random_magnitude(RATE_MAX - 1000);

		state.rate_bps = before;
		model.rate = before;
		params.min_rate_bps = 1;
		params.max_rate_bps = RATE_MAX;
		params.alpha = random_magnitude(RATE_ONE);
		params.beta = random_magnitude(RATE_ONE);
		params.delta_bps = 1 + random_magnitude(RATE_MAX - 1);
		params.hai = 1 + random_magnitude(999);
		params.min_rtt_ns = 1 + random_magnitude(999999999);
		params.q_low_ns = random_magnitude(1000000000);
		params.q_high_ns = params.q_low_ns + random_magnitude(1000000000 - params.q_low_ns);
		event(&state, &params, sample_ns);
		model_event(&model, &params, sample_ns);
		if (model.difference < 0 || model.difference > 1)
			EXPECT(distance(state.rate_bps, model.rate) <=
			       2 + before * (4.0 / RATE_ONE + 1.0 / TIMELY_FINE / params.min_rtt_ns));
	}
}

/* Any 64-bit number may be received. */
static void an_occupancy_of_any_size_is_time(void)
{
	u32 i;

	for (i = 0; i < 1000000; i++) {
		struct timely_params params = defaults;
		const struct rate_ack ack = {
			.signal = random_u64() >> random_below(64),
			.kind = QSIGNAL_SUM,
			.unit = random_below(2) ? QSIGNAL_PACKETS : QSIGNAL_BYTES,
		};
		double bytes = ack.signal, ns;

		params.queue_rate_bps = 1000000 + random_magnitude(RATE_MAX - 1000000);
		params.packet_bytes = 1 + random_magnitude(65534);
		if (ack.unit == QSIGNAL_PACKETS)
			bytes *= params.packet_bytes;
		ns = (bytes < RATE_QUEUE_MAX_BYTES ? bytes : RATE_QUEUE_MAX_BYTES) * 8e9 / params.queue_rate_bps;
		EXPECT(distance(timely_queueing_ns(&params, &ack), ns) <= 1 + 1e-12 * ns);
	}
}

int main(void)
{
	below_t_low_the_rate_rises_by_delta();
	above_t_high_it_falls_by_the_excess();
	between_them_it_follows_the_gradient();
	an_event_is_due_after_a_segment();
	an_occupancy_is_time();
	without_the_requested_signal_the_rate_stays();
	only_packets_sent_after_a_decrease_decrease_again();
	it_agrees_with_the_model();
	nothing_overflows();
	an_occupancy_of_any_size_is_time();
	return PASS();
}
