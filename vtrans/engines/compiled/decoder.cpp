// The C interface: search steps for decoder.py, which match incremental.py; the forced pass for forced.py; the plain
// search for plain_search.py; and attention and loss for training/optimization/compiled.py.
//
// Legend: D model width, V vocabulary, B sentences, K rows of a sentence, N rows of a call.

#include "forced.h"
#include "plain_search.h"
#include "training.h"

namespace vtrans {

// Returns the result of a function, or `failed` after an exception, because no exception may leave the library.
template <class Function, class Result>
Result or_failed(Result failed, Function function) {
    try {
        return function();
    } catch (const std::exception&) {
        return failed;
    }
}

// Calls compute(zero) with a zero in bfloat16 or float32. Returns 0, or -1 after an exception.
template <class Compute>
int with_numbers(int halves, Compute compute) {
    return or_failed(-1, [&] { return halves ? compute(uint16_t()) : compute(float()), 0; });
}

}  // namespace vtrans

// Functions for Python. Arrays are dense; the comments state their sizes. If memory is exhausted, a returned pointer is
// null, and a returned number is negative.

using namespace vtrans;

extern "C" {

// `listed` [count] are the subwords that all sentences allow; none: the whole vocabulary.
Model* new_model(const Sizes* sizes, const float* const* tensors, const int64_t* listed, int count) {
    return or_failed((Model*)nullptr, [&] { return new Model(*sizes, tensors, listed, count); });
}
void delete_model(Model* model) { delete model; }

Batch* new_batch(const Model* model, int K, int threads) {
    return or_failed((Batch*)nullptr, [&] { return new Batch(*model, K, threads); });
}
void delete_batch(Batch* batch) { delete batch; }

// `lengths` [count], `tokens` [their sum], `free` [free_count], `positions` [the longest, D], `listed_lengths` [count],
// `listed` [their sum].
int batch_admit(Batch* batch, const int64_t* tokens, const int64_t* lengths, int count, const int64_t* free,
                int free_count, const float* positions, const int64_t* listed, const int64_t* listed_lengths) {
    return or_failed(-1, [&] {
        return batch->admit(tokens, lengths, count, free, free_count, positions, listed, listed_lengths), 0;
    });
}

void batch_drop(Batch* batch, const int64_t* dropped, int count) {
    for (int i = 0; i < count; i++) batch->places[dropped[i]] = nullptr;
}

int batch_select(Batch* batch, const int64_t* kept, int count) {
    return or_failed(-1, [&] {
        std::vector<std::unique_ptr<Sentence>> places;
        for (int i = 0; i < count; i++) places.push_back(std::move(batch->places[kept[i]]));
        batch->places = std::move(places);
        return 0;
    });
}

// Returns the number of position rows that the next step reads.
int batch_positions(Batch* batch) {
    int needed = 0;
    for (const auto& place : batch->places)
        if (place) needed = std::max(needed, place->position + 1);
    return needed;
}

// `tokens` [B, K], `positions` [batch_positions(), D].
int batch_step(Batch* batch, const int64_t* tokens, const float* positions) {
    return or_failed(-1, [&] { return batch->step(tokens, positions), 0; });
}

// See Batch::reorder.
int batch_reorder(Batch* batch, const int64_t* parents) {
    return or_failed(-1, [&] { return batch->reorder(parents), 0; });
}

// `rows` [N], here and below; `out` [N, D], the decoder's output, with which tests check the projection.
int batch_hidden(Batch* batch, const int64_t* rows, int N, float* out) {
    return or_failed(-1, [&] {
        for (const Output& output : batch->outputs(rows, N)) out = std::copy_n(output.x, batch->D, out);
        return 0;
    });
}

// See Batch::logprobs.
int batch_logprobs(Batch* batch, const int64_t* rows, int N, float* out) {
    return or_failed(-1, [&] { return batch->logprobs(rows, N, out), 0; });
}

// See Batch::best. Returns 1 if a log-probability is NaN.
int batch_best(Batch* batch, const int64_t* rows, int N, int count, int64_t* ids, float* out) {
    return or_failed(-1, [&] { return batch->best(rows, N, count, ids, out) ? 0 : 1; });
}

// Computes the log-probabilities of all target subwords of `pairs`, concatenated in `logprobs`. If `attention` is not
// null, adds the attention [T, S] of each target to its source. Positions are [the longest, D].
int forced_pass(const Model* model, const Pairs* pairs, const float* src_positions, const float* tgt_positions,
                int threads, float* logprobs, float* attention) {
    return or_failed(-1, [&] {
        return ForcedPass(*model, *pairs, src_positions, tgt_positions, logprobs, attention).run(threads), 0;
    });
}

PlainSearch* new_search(Batch* batch, const Request* request) {
    return or_failed((PlainSearch*)nullptr, [&] { return new PlainSearch(*batch, *request); });
}
void delete_search(PlainSearch* search) { delete search; }

// See PlainSearch for these functions.
int search_enter(PlainSearch* search, const int64_t* limits) {
    return or_failed(-1, [&] { return search->enter(limits), 0; });
}

int search_leave(PlainSearch* search, int b, Ending* results, double* paths) {
    return search->leave(b, results, paths);
}

// Returns 1 if a log-probability is NaN.
int search_step(PlainSearch* search, const float* positions, char* finished) {
    return or_failed(-1, [&] { return search->step(positions, finished) ? 0 : 1; });
}

// In training, numbers are in bfloat16 if `halves` is set, and otherwise in float32. See AttentionSizes; `out` and its
// gradient are [B, T, H * d].
int attention_forward(const AttentionSizes* sizes, int halves, int threads, const void* q, const void* k, const void* v,
                      void* out) {
    return with_numbers(halves, [&](auto zero) {
        using Number = decltype(zero);
        for_heads<Number>(*sizes, threads, [&](HeadAttention<Number>& head, int b, int h) {
            head.forward(b, h, (const Number*)q, (const Number*)k, (const Number*)v, (Number*)out);
        });
    });
}

int attention_backward(const AttentionSizes* sizes, int halves, int threads, const void* q, const void* k,
                       const void* v, const void* grad_out, void* grad_q, void* grad_k, void* grad_v) {
    return with_numbers(halves, [&](auto zero) {
        using Number = decltype(zero);
        for_heads<Number>(*sizes, threads, [&](HeadAttention<Number>& head, int b, int h) {
            head.backward(b, h, (const Number*)q, (const Number*)k, (const Number*)v, (const Number*)grad_out,
                          (Number*)grad_q, (Number*)grad_k, (Number*)grad_v);
        });
    });
}

// See add_dropped, whose arrays are [count]. `halves` is about the output of the sublayer and its gradient; everything
// else is in float32.
int residual(int halves, int threads, const float* x, const void* y, void* out, int64_t count, const uint32_t* seeds,
             int dropped) {
    return with_numbers(halves, [&](auto zero) {
        using Number = decltype(zero);
        in_threads(threads, [&](int t) {
            int64_t begin = count * t / threads, end = count * (t + 1) / threads;
            if (x)
                add_dropped(x, (const Number*)y, (float*)out, begin, end, seeds, dropped);
            else
                add_dropped(x, (const float*)y, (Number*)out, begin, end, seeds, dropped);
        });
    });
}

// See loss_gradient; `logits` [rows, V], `targets` [rows], `sums` [rows, 2].
int loss_gradients(int halves, int threads, void* logits, const int64_t* targets, int rows, int V, int pad_id,
                   float smoothing, double* sums) {
    return with_numbers(halves, [&](auto zero) {
        in_threads(threads, [&](int t) {
            Floats row(V);
            for (int r = share(rows, t, threads); r < share(rows, t + 1, threads); r++)
                loss_gradient((decltype(zero)*)logits + size_t(r) * V, V, targets[r], pad_id, smoothing, row,
                              sums + 2 * r);
        });
    });
}
}
