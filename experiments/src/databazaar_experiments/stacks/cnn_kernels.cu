/* Local SGD of many small convolutional networks at once, each with its own parameters, and their features.

The network is that of models.build_model("cnn", ...): FILTERS filters of 5x5 on a gray image, max-pooling over 2x2
windows, ReLU, a linear layer to HIDDEN units, ReLU, a linear layer to CLASSES; the loss is cross-entropy.

`epoch` keeps a network on the chip while it trains. A step of SGD touches every weight of the first linear layer a few
times, and fetching them from memory is what a step costs otherwise. A filter's features meet those of other filters in
the hidden units only, so a network is a cluster of FILTERS blocks, one per filter. A block holds the filter, its slice
of the first linear layer (in shared memory), that slice's velocity (in registers) and a copy of the last layer. A step:

    heads    z = b + sum_f z_f, from every block's share z_f of the hidden units; the last layer, forth and back, and
             its update; the slopes d = dloss/dz. Every block does the same here, on its own copy.
    slice    from d the gradient of the slice, its update, and what passes back to the features
    taps     through the place that won each pooling window, the gradient of the filter, and its update
    forward  the next batch through the new filter and the new slice: the share z_f of the next step

The shares are all that blocks tell each other, once a step. Momentum is that of torch.optim.SGD: v <- MOMENTUM v +
gradient, w <- w - rate v. Sums are float32 sums in an order that never changes, so a run repeats bit by bit.

A block works in phases, EACH(i, n) { ... } SYNC, that share nothing but memory. The same file therefore compiles as
plain C++ (each phase a loop), and that is how the tests run it where there is no GPU. SIDE, FILTERS, HIDDEN, CLASSES,
BATCH, MOMENTUM and THREADS are defined in front of it. */

#ifdef __CUDACC_RTC__
#define DEVICE static __device__ __forceinline__
#define EACH(i, n) for (int i = threadIdx.x; i < (n); i += blockDim.x)
#define OWN(v, half) if (int v = threadIdx.x % COLUMN, half = threadIdx.x / COLUMN; v < WINDOWS)
#define SYNC __syncthreads();
#define TOLD asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#define HEARD asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#define FROM_OTHERS(p) __ldcg(p)
#define UNROLL _Pragma("unroll")
#define UNROLL4 _Pragma("unroll 4")
#define UNROLL8 _Pragma("unroll 8")
#define ALIGNED __align__(16)
#define VELOCITIES HALF
#define VELOCITY(k, half, v) velocity[k]
#else
#include <cmath>
#define DEVICE static inline
#define EACH(i, n) for (int i = 0; i < (n); i++)
#define OWN(v, half)                        \
    for (int half = 0; half < HALVES; half++) \
        for (int v = 0; v < WINDOWS; v++)
#define SYNC
#define TOLD
#define HEARD
#define FROM_OTHERS(p) (*(p))
#define UNROLL
#define UNROLL4
#define UNROLL8
#define ALIGNED alignas(16)
#define VELOCITIES (HALVES * HALF * WINDOWS)
#define VELOCITY(k, half, v) velocity[((half) * HALF + (k)) * WINDOWS + (v)]
#define __restrict__
#endif

#define SIZE 5
#define TAPS 25 /* and a filter's bias is its 26th tap, whose pixel is always 1 */
#define TAPS_PADDED 32
#define ACROSS ((SIDE - SIZE + 1) / 2)
#define WINDOWS (ACROSS * ACROSS)
#define FEATURES (FILTERS * WINDOWS)
#define PIXELS (SIDE * SIDE)
#define WIDE (SIDE + SIZE) /* an image row in shared memory: 25 taps then lie in 25 banks where SIDE is 32 */
#define LANES 8            /* a batch of up to 8 samples, side by side */
#define COLUMN ((WINDOWS + 31) / 32 * 32)
#define HALVES (THREADS / COLUMN) /* a thread looks after one window and one half of the hidden units */
#define HALF ((HIDDEN + HALVES - 1) / HALVES)
#define PARTS 14 /* a sum over the windows is worked out in so many parts, side by side */
#define PART ((WINDOWS + PARTS - 1) / PARTS)
#define STRIPES 4 /* hidden units that one thread sums up at a time */
#define STRIPE ((HIDDEN + STRIPES - 1) / STRIPES)
#define SUMS 14           /* a tap's gradient is summed up in so many parts */
#define DOTS 8            /* and a class's output in so many */
#define ROW (WINDOWS | 1) /* an odd distance keeps neighbours in different banks */

/* Where a network's parameters lie in its row. */
#define BIAS0_AT (FILTERS * TAPS)
#define WEIGHT1_AT (BIAS0_AT + FILTERS)
#define BIAS1_AT (WEIGHT1_AT + HIDDEN * FEATURES)
#define WEIGHT2_AT (BIAS1_AT + HIDDEN)
#define BIAS2_AT (WEIGHT2_AT + CLASSES * HIDDEN)
#define WIDTH (BIAS2_AT + CLASSES)

typedef long long whole;
typedef struct ALIGNED { float at[LANES]; } Lanes;        /* one number for each sample of a batch */
typedef struct ALIGNED { float at[TAPS_PADDED]; } Filter; /* taps, bias, padding */

typedef struct ALIGNED {
    Lanes active[WINDOWS]; /* the features */
    Lanes place[WINDOWS];  /* which pixel the winning place of a window begins at */
    Lanes back[HALVES][WINDOWS]; /* what passes back to the features, from each half of the hidden units */
    Lanes slope[HIDDEN];
    Filter tap, tap_v;
    float pictures[2][BATCH * SIDE * WIDE]; /* this batch and the next, by turns */
    float weight1[HIDDEN * ROW];
    float parts[PARTS * BATCH * HIDDEN];
    float sums[SUMS * TAPS_PADDED];
    float weight2[CLASSES * (HIDDEN + 1)], weight2_v[CLASSES * (HIDDEN + 1)];
    float bias1[HIDDEN], bias1_v[HIDDEN], bias2[CLASSES], bias2_v[CLASSES];
    float units[BATCH * HIDDEN];
    float outputs[DOTS * BATCH * CLASSES];
} Chip;

/* The largest of a filter's four answers in a pooling window, before ReLU, and where in the window it stands. */
DEVICE float strongest(const float* seen, const Filter* filter, int* place)
{
    Filter t = *filter;
    float q[4] = {t.at[TAPS], t.at[TAPS], t.at[TAPS], t.at[TAPS]};
    UNROLL for (int y = 0; y < SIZE; y++)
        UNROLL for (int x = 0; x < SIZE; x++)
            UNROLL for (int k = 0; k < 4; k++)
                q[k] += t.at[y * SIZE + x] * seen[(y + k / 2) * (SIZE + 1) + x + k % 2];
    int upper = q[1] > q[0], lower = q[3] > q[2] ? 3 : 2;
    float a = upper ? q[1] : q[0], b = lower == 3 ? q[3] : q[2];
    *place = b > a ? lower : upper;
    return b > a ? b : a;
}

/* The 6x6 pixels that the four places of a window see. */
DEVICE void look(const float* picture, float* seen)
{
    UNROLL for (int y = 0; y <= SIZE; y++)
        UNROLL for (int x = 0; x <= SIZE; x++) seen[y * (SIZE + 1) + x] = picture[y * WIDE + x];
}

DEVICE int corner(int window) { return 2 * (window / ACROSS) * WIDE + 2 * (window % ACROSS); }

DEVICE void fetch(float* picture, const float* __restrict__ images, const whole* __restrict__ samples)
{
    UNROLL8 EACH(i, BATCH * PIXELS)
    {
        int j = i / PIXELS, pixel = i % PIXELS;
        picture[(j * SIDE + pixel / SIDE) * WIDE + pixel % SIDE] = images[samples[j] * PIXELS + pixel];
    }
}

/* A batch through the filter and its slice; `share` [BATCH, HIDDEN] goes to all blocks of the network. */
DEVICE void forward(Chip* c, const float* picture, float* __restrict__ share)
{
    EACH(i, BATCH * WINDOWS)
    {
        int j = i / WINDOWS, v = i % WINDOWS, at = j * SIDE * WIDE + corner(v), which;
        float seen[(SIZE + 1) * (SIZE + 1)];
        look(picture + at, seen);
        float best = strongest(seen, &c->tap, &which);
        c->active[v].at[j] = best > 0 ? best : 0;
        c->place[v].at[j] = at + (which / 2) * WIDE + which % 2;
    }
    SYNC
    EACH(i, STRIPE * PARTS)
    {
        int o = i % STRIPE, part = i / STRIPE, end = (part + 1) * PART < WINDOWS ? (part + 1) * PART : WINDOWS;
        float sum[STRIPES][BATCH];
        UNROLL for (int k = 0; k < STRIPES; k++)
            UNROLL for (int j = 0; j < BATCH; j++) sum[k][j] = 0;
        UNROLL4 for (int v = part * PART; v < end; v++) {
            Lanes seen = c->active[v];
            UNROLL for (int k = 0; k < STRIPES; k++) {
                float weight = o + k * STRIPE < HIDDEN ? c->weight1[(o + k * STRIPE) * ROW + v] : 0;
                UNROLL for (int j = 0; j < BATCH; j++) sum[k][j] += weight * seen.at[j];
            }
        }
        UNROLL for (int k = 0; k < STRIPES; k++)
            if (o + k * STRIPE < HIDDEN)
                UNROLL for (int j = 0; j < BATCH; j++)
                    c->parts[(part * BATCH + j) * HIDDEN + o + k * STRIPE] = sum[k][j];
    }
    SYNC
    EACH(i, BATCH * HIDDEN)
    {
        float sum = 0;
        UNROLL for (int part = 0; part < PARTS; part++) sum += c->parts[part * BATCH * HIDDEN + i];
        share[i] = sum;
    }
}

/* The last layer on this batch: its slopes, and its update. `shares` [FILTERS, BATCH, HIDDEN] come from all blocks. */
DEVICE void heads(Chip* c, const float* shares, const whole* __restrict__ labels, const whole* __restrict__ samples,
                  const float* __restrict__ weights, float rate)
{
    EACH(i, BATCH * HIDDEN)
    {
        float z = c->bias1[i % HIDDEN];
        UNROLL for (int f = 0; f < FILTERS; f++) z += FROM_OTHERS(shares + f * BATCH * HIDDEN + i);
        c->units[i] = z > 0 ? z : 0;
    }
    SYNC
    EACH(i, DOTS * BATCH * CLASSES)
    {
        int dot = i % DOTS, j = i / DOTS / CLASSES, class_ = i / DOTS % CLASSES;
        float output = dot ? 0 : c->bias2[class_];
        UNROLL4 for (int o = dot; o < HIDDEN; o += DOTS)
            output += c->weight2[class_ * (HIDDEN + 1) + o] * c->units[j * HIDDEN + o];
        c->outputs[i] = output;
    }
    SYNC
    EACH(j, BATCH) /* softmax - 1{class = label}, weighted */
    {
        float s[CLASSES], most = 0, all = 0, weight = weights[j];
        int label = (int)labels[samples[j]];
        UNROLL for (int k = 0; k < CLASSES; k++) {
            s[k] = 0;
            UNROLL for (int dot = 0; dot < DOTS; dot++) s[k] += c->outputs[(j * CLASSES + k) * DOTS + dot];
            most = !k || s[k] > most ? s[k] : most;
        }
        UNROLL for (int k = 0; k < CLASSES; k++) all += s[k] = expf(s[k] - most);
        UNROLL for (int k = 0; k < CLASSES; k++) c->outputs[(j * CLASSES + k) * DOTS] = (s[k] / all - (k == label)) * weight;
    }
    SYNC
    EACH(i, BATCH * HIDDEN)
    {
        int j = i / HIDDEN, o = i % HIDDEN;
        float d = 0;
        UNROLL for (int k = 0; k < CLASSES; k++)
            d += c->weight2[k * (HIDDEN + 1) + o] * c->outputs[(j * CLASSES + k) * DOTS];
        c->slope[o].at[j] = c->units[i] > 0 ? d : 0;
    }
    SYNC
    EACH(i, CLASSES * HIDDEN)
    {
        int k = i / HIDDEN, o = i % HIDDEN, at = k * (HIDDEN + 1) + o;
        float velocity = MOMENTUM * c->weight2_v[at];
        UNROLL for (int j = 0; j < BATCH; j++)
            velocity += c->outputs[(j * CLASSES + k) * DOTS] * c->units[j * HIDDEN + o];
        c->weight2_v[at] = velocity;
        c->weight2[at] -= rate * velocity;
    }
    EACH(o, HIDDEN)
    {
        float velocity = MOMENTUM * c->bias1_v[o];
        UNROLL for (int j = 0; j < BATCH; j++) velocity += c->slope[o].at[j];
        c->bias1_v[o] = velocity;
        c->bias1[o] -= rate * velocity;
    }
    EACH(k, CLASSES)
    {
        float velocity = MOMENTUM * c->bias2_v[k];
        UNROLL for (int j = 0; j < BATCH; j++) velocity += c->outputs[(j * CLASSES + k) * DOTS];
        c->bias2_v[k] = velocity;
        c->bias2[k] -= rate * velocity;
    }
}

/* The filter's slice: its gradient and update, and what passes back to the features. A thread has one column of it. */
DEVICE void slice(Chip* c, float* velocity, float rate)
{
    OWN(v, half)
    {
        Lanes seen = c->active[v], sum = {{0}};
        UNROLL for (int k = 0; k < HALF; k++) {
            int o = half * HALF + k;
            if (HALVES * HALF == HIDDEN || o < HIDDEN) {
                Lanes d = c->slope[o];
                float weight = c->weight1[o * ROW + v], moved = MOMENTUM * VELOCITY(k, half, v);
                UNROLL for (int j = 0; j < BATCH; j++) {
                    sum.at[j] += weight * d.at[j];
                    moved += d.at[j] * seen.at[j];
                }
                VELOCITY(k, half, v) = moved;
                c->weight1[o * ROW + v] = weight - rate * moved;
            }
        }
        UNROLL for (int j = 0; j < BATCH; j++) sum.at[j] = seen.at[j] > 0 ? sum.at[j] : 0;
        c->back[half][v] = sum;
    }
}

/* The filter: its gradient and update, tap by tap. */
DEVICE void taps(Chip* c, const float* picture, float rate)
{
    EACH(i, SUMS * TAPS_PADDED)
    {
        int k = i % TAPS_PADDED;
        float sum = 0;
        if (k <= TAPS)
            UNROLL4 for (int v = i / TAPS_PADDED; v < WINDOWS; v += SUMS) {
                Lanes passed = c->back[0][v], where = c->place[v];
                UNROLL for (int half = 1; half < HALVES; half++)
                    UNROLL for (int j = 0; j < BATCH; j++) passed.at[j] += c->back[half][v].at[j];
                UNROLL for (int j = 0; j < BATCH; j++) {
                    int at = (int)where.at[j] + (k / SIZE) * WIDE + k % SIZE;
                    sum += passed.at[j] * (k < TAPS ? picture[at] : 1.0f);
                }
            }
        c->sums[i] = sum;
    }
    SYNC
    EACH(k, TAPS_PADDED)
    {
        float moved = MOMENTUM * c->tap_v.at[k];
        UNROLL for (int s = 0; s < SUMS; s++) moved += c->sums[s * TAPS_PADDED + k];
        c->tap_v.at[k] = moved;
        c->tap.at[k] -= rate * moved;
    }
}

/* The parameters come in, the velocities are zero. */
DEVICE void load(Chip* c, float* velocity, const float* __restrict__ params, int filter)
{
    EACH(k, TAPS_PADDED)
    {
        c->tap.at[k] = k < TAPS ? params[filter * TAPS + k] : k == TAPS ? params[BIAS0_AT + filter] : 0;
        c->tap_v.at[k] = 0;
    }
    UNROLL8 EACH(i, HIDDEN * WINDOWS)
        c->weight1[(i / WINDOWS) * ROW + i % WINDOWS] =
            params[WEIGHT1_AT + (i / WINDOWS) * FEATURES + filter * WINDOWS + i % WINDOWS];
    EACH(i, CLASSES * HIDDEN)
    {
        int at = (i / HIDDEN) * (HIDDEN + 1) + i % HIDDEN;
        c->weight2[at] = params[WEIGHT2_AT + i];
        c->weight2_v[at] = 0;
    }
    EACH(o, HIDDEN) c->bias1[o] = params[BIAS1_AT + o], c->bias1_v[o] = 0;
    EACH(k, CLASSES) c->bias2[k] = params[BIAS2_AT + k], c->bias2_v[k] = 0;
    OWN(v, half) UNROLL for (int k = 0; k < HALF; k++) VELOCITY(k, half, v) = 0;
}

/* The update, w after - w before, goes out: each block its own part, the first one the last layer, too. */
DEVICE void store(const Chip* c, const float* __restrict__ params, float* __restrict__ update, int filter)
{
    EACH(k, TAPS) update[filter * TAPS + k] = c->tap.at[k] - params[filter * TAPS + k];
    EACH(once, 1) update[BIAS0_AT + filter] = c->tap.at[TAPS] - params[BIAS0_AT + filter];
    UNROLL8 EACH(i, HIDDEN * WINDOWS)
    {
        int at = WEIGHT1_AT + (i / WINDOWS) * FEATURES + filter * WINDOWS + i % WINDOWS;
        update[at] = c->weight1[(i / WINDOWS) * ROW + i % WINDOWS] - params[at];
    }
    if (filter) return;
    EACH(o, HIDDEN) update[BIAS1_AT + o] = c->bias1[o] - params[BIAS1_AT + o];
    EACH(i, CLASSES * HIDDEN)
        update[WEIGHT2_AT + i] = c->weight2[(i / HIDDEN) * (HIDDEN + 1) + i % HIDDEN] - params[WEIGHT2_AT + i];
    EACH(k, CLASSES) update[BIAS2_AT + k] = c->bias2[k] - params[BIAS2_AT + k];
}

/* What a network's blocks are given, each pointer moved to its row. */
typedef struct {
    const float* params;
    float* update;
    const float* images;
    const whole* labels;
    const whole* samples; /* [steps, BATCH] */
    const float* weights; /* [steps, BATCH] */
    const float* rates;   /* [steps] */
    float* shares;        /* [2, FILTERS, BATCH, HIDDEN], by turns */
} Given;

DEVICE float* shares_of(const Given* g, int step, int filter)
{
    return g->shares + ((step % 2) * FILTERS + filter) * BATCH * HIDDEN;
}

DEVICE void begin(const Given* g, Chip* c, float* velocity, int filter)
{
    load(c, velocity, g->params, filter);
    fetch(c->pictures[0], g->images, g->samples);
    SYNC
    forward(c, c->pictures[0], shares_of(g, 0, filter));
    SYNC
}

DEVICE void one_step(const Given* g, Chip* c, float* velocity, int step, int steps, int filter)
{
    float *now = c->pictures[step % 2], *next = c->pictures[(step + 1) % 2], rate = g->rates[step];
    TOLD
    if (step + 1 < steps) fetch(next, g->images, g->samples + (step + 1) * BATCH);
    HEARD
    heads(c, shares_of(g, step, 0), g->labels, g->samples + step * BATCH, g->weights + step * BATCH, rate);
    slice(c, velocity, rate);
    SYNC
    taps(c, now, rate);
    SYNC
    if (step + 1 < steps) forward(c, next, shares_of(g, step + 1, filter));
    SYNC
}

#define EPOCH_GIVEN                                                                                                 \
    const float *params, float *updates, const float *images, const whole *labels, const whole *samples,            \
        const float *weights, const float *rates, float *shares, int steps
#define ROW_OF(row)                                                                                                   \
    {params + (whole)(row)*WIDTH, updates + (whole)(row)*WIDTH, images, labels, samples + (whole)(row)*steps * BATCH, \
     weights + (whole)(row)*steps * BATCH, rates + (whole)(row)*steps,                                                \
     shares + (whole)(row)*2 * FILTERS * BATCH * HIDDEN}

/* The features of one network on a few images. */
#define FEW 8
typedef struct ALIGNED {
    Filter tap[FILTERS];
    float pictures[FEW * SIDE * WIDE];
} Gallery;

DEVICE void few_images(const float* __restrict__ images, const float* __restrict__ params, float* __restrict__ out,
                       int count, int first, Gallery* g)
{
    int few = count - first < FEW ? count - first : FEW;
    EACH(i, FILTERS * TAPS_PADDED)
    {
        int f = i / TAPS_PADDED, k = i % TAPS_PADDED;
        g->tap[f].at[k] = k < TAPS ? params[f * TAPS + k] : k == TAPS ? params[BIAS0_AT + f] : 0;
    }
    UNROLL8 EACH(i, few * PIXELS) g->pictures[(i / SIDE) * WIDE + i % SIDE] = images[(whole)first * PIXELS + i];
    SYNC
    EACH(i, few * WINDOWS)
    {
        int image = i / WINDOWS, v = i % WINDOWS, which;
        float seen[(SIZE + 1) * (SIZE + 1)];
        look(g->pictures + image * SIDE * WIDE + corner(v), seen);
        for (int f = 0; f < FILTERS; f++) {
            float best = strongest(seen, g->tap + f, &which);
            out[(whole)(first + image) * FEATURES + f * WINDOWS + v] = best > 0 ? best : 0;
        }
    }
}

#define FEATURES_GIVEN const float *images, const float *params, float *out, int count

#ifdef __CUDACC_RTC__
extern "C" __global__ void __cluster_dims__(FILTERS, 1, 1) __launch_bounds__(THREADS, 1) epoch(EPOCH_GIVEN)
{
    extern __shared__ __align__(16) char memory[];
    Chip* chip = (Chip*)memory;
    float velocity[VELOCITIES];
    Given given = ROW_OF(blockIdx.y);
    begin(&given, chip, velocity, blockIdx.x);
    for (int step = 0; step < steps; step++) one_step(&given, chip, velocity, step, steps, blockIdx.x);
    store(chip, given.params, given.update, blockIdx.x);
}
extern "C" __global__ void __launch_bounds__(COLUMN, 3) features(FEATURES_GIVEN)
{
    extern __shared__ __align__(16) char memory[];
    whole row = blockIdx.y;
    few_images(images, params + row * WIDTH, out + row * count * FEATURES, count, blockIdx.x * FEW, (Gallery*)memory);
}
#else
static Chip chips[FILTERS];
static float velocities[FILTERS][VELOCITIES];
static Gallery gallery;
extern "C" void epoch(int, int rows, EPOCH_GIVEN)
{
    for (int row = 0; row < rows; row++) {
        Given given = ROW_OF(row);
        for (int f = 0; f < FILTERS; f++) begin(&given, chips + f, velocities[f], f);
        for (int step = 0; step < steps; step++)
            for (int f = 0; f < FILTERS; f++) one_step(&given, chips + f, velocities[f], step, steps, f);
        for (int f = 0; f < FILTERS; f++) store(chips + f, given.params, given.update, f);
    }
}
extern "C" void features(int, int rows, FEATURES_GIVEN)
{
    for (whole row = 0; row < rows; row++)
        for (int first = 0; first < count; first += FEW)
            few_images(images, params + row * WIDTH, out + row * count * FEATURES, count, first, &gallery);
}
extern "C" void shared_bytes(int* bytes) { bytes[0] = sizeof(Chip), bytes[1] = sizeof(Gallery); }
#endif
