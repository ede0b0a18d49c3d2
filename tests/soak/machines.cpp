// Computes the cases of machines.py with the compiled decoder: `machines CASES RESULTS`.
//
// An array in either file is the number of its bytes, as int64, followed by the bytes.
//
// Legend: D model width, T target length, N rows, I inputs, O outputs.

#include "decoder.cpp"

#include <cstdio>
#include <cstdlib>

namespace {

FILE *cases, *results;

void check(bool right, const char* what) {
    if (right) return;
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

template <class Number>
std::vector<Number> read() {
    int64_t bytes;
    check(std::fread(&bytes, sizeof bytes, 1, cases) == 1, "the cases are cut");
    std::vector<Number> numbers(size_t(bytes) / sizeof(Number));
    check(std::fread(numbers.data(), 1, size_t(bytes), cases) == size_t(bytes), "the cases are cut");
    return numbers;
}

template <class Number>
void write(const std::vector<Number>& numbers) {
    int64_t bytes = int64_t(numbers.size() * sizeof(Number));
    std::fwrite(&bytes, sizeof bytes, 1, results);
    std::fwrite(numbers.data(), 1, size_t(bytes), results);
}

// A matrix product.
void compute_product() {
    auto shape = read<int32_t>();  // N, I, O and the precision
    auto x = read<float>(), weight = read<float>(), bias = read<float>();
    int N = shape[0], I = shape[1], O = shape[2];
    Matrix from(I), to(O);
    from.reserve(N), to.reserve(N);
    for (int r = 0; r < N; r++) std::copy_n(&x[size_t(r) * I], I, from.row(r));
    Linear linear(weight.data(), bias.data(), I, O, Precision(shape[3]));
    Scratch scratch;
    product(linear, from, N, to, scratch);
    std::vector<float> y;
    for (int r = 0; r < N; r++) y.insert(y.end(), to.row(r), to.row(r) + O);
    write(y);
}

// The plain search of all sources.
void search(const Model* model, const Pairs& pairs, Request request, const std::vector<int64_t>& limits,
            const std::vector<float>& src_positions, const std::vector<float>& tgt_positions) {
    int count = pairs.count, left = count;
    std::vector<int64_t> none(count, 0);
    Batch* batch = new_batch(model, request.beam, 2);
    batch_admit(batch, pairs.sources, pairs.source_lengths, count, nullptr, 0, src_positions.data(), nullptr,
                none.data());
    PlainSearch* search = new_search(batch, &request);
    search_enter(search, limits.data());
    std::vector<std::vector<double>> scores(count), paths(count);
    while (left) {
        std::vector<char> finished(count, 0);
        check(search_step(search, tgt_positions.data(), finished.data()) == 0, "a log-probability is NaN");
        for (int b = 0; b < count; b++) {
            if (!finished[b]) continue;
            std::vector<Ending> endings(request.nbest);
            paths[b].resize(size_t(request.nbest) * 2 * limits[b]);
            int found = search_leave(search, b, endings.data(), paths[b].data());
            for (int n = 0; n < found; n++)
                scores[b].insert(scores[b].end(), {endings[n].score, double(endings[n].length)});
            left--;
        }
    }
    delete_search(search);
    delete_batch(batch);
    for (int b = 0; b < count; b++) write(scores[b]), write(paths[b]);
}

// The forced pass over some pairs, and the search of their sources.
void compute_model() {
    auto sizes = read<Sizes>();
    std::vector<std::vector<float>> tensors;
    std::vector<const float*> pointers;
    for (int left = read<int32_t>()[0]; left; left--) tensors.push_back(read<float>());
    for (const auto& tensor : tensors) pointers.push_back(tensor.empty() ? nullptr : tensor.data());
    auto src_positions = read<float>(), tgt_positions = read<float>();
    auto sources = read<int64_t>(), source_lengths = read<int64_t>(), targets = read<int64_t>(), fed = read<int64_t>(),
         target_lengths = read<int64_t>();
    auto layers = read<int32_t>();
    auto limits = read<int64_t>();
    Model* model = new_model(sizes.data(), pointers.data(), nullptr, 0);
    check(model, "there is no model");
    int count = int(source_lengths.size());
    Pairs pairs{sources.data(), source_lengths.data(), targets.data(), fed.data(), target_lengths.data(),
                count,          layers[0],             layers[1],      layers[2]};
    int64_t weights = 0;
    for (int j = 0; j < count; j++) weights += source_lengths[j] * target_lengths[j];
    std::vector<float> logprobs(targets.size()), attention(weights);
    int failed = forced_pass(model, &pairs, src_positions.data(), tgt_positions.data(), 2, logprobs.data(),
                             attention.data());
    check(!failed, "the forced pass failed");
    write(logprobs), write(attention);
    Request request{};
    request.alpha = 0.6, request.beam = 4, request.nbest = 2, request.stop = CURRENT;
    request.bos = 2, request.eos = 3;
    search(model, pairs, request, limits, src_positions, tgt_positions);
    delete_model(model);
}

}  // namespace

int main(int count, char** names) {
    check(count == 3, "usage: machines CASES RESULTS");
    cases = std::fopen(names[1], "rb"), results = std::fopen(names[2], "wb");
    check(cases && results, "a file cannot be opened");
    for (int left = read<int32_t>()[0]; left; left--) read<int32_t>()[0] ? compute_model() : compute_product();
    return std::fclose(results) ? 1 : 0;
}
