// One forward for training and inference: documents packed into one call, cached sequences fed in chunks of
// 1, 7 and 64 tokens beside others, and forks give the same bits for every token, on every kernel and
// instruction set.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/philox.h"
#include "device/simd/isa.h"
#include "ops/attention/attention.h"
#include "ops/cca/cca.h"
#include "ops/qk_prepare/qk_prepare.h"
#include "ops/reference.h"
#include "ops/sequence/sequence_store.h"
#include "support/other_threads.h"

namespace ingot::test::sequence_invariance_test {

using reference::Array;

Array draw(uint64_t stream, int64_t count, double scale, double offset = 0) {
  const Random random(11, RandomPurpose::test, stream);
  Array values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = random.normal(i) * scale + offset;
  return values;
}

/// Memory of a tensor.
struct Owned {
  Owned(Shape shape, DType type)
      : bytes(static_cast<size_t>(shape.numel() * size_of(type)) + 64), tensor(bytes.data(), shape, type) {}
  Owned(Shape shape, DType type, const Array& values) : Owned(shape, type) {
    reference::store(tensor, values);
  }
  std::vector<std::byte> bytes;
  Tensor tensor;
};

enum class Preparation { qk, cca };

struct Variant {
  Preparation preparation = Preparation::qk;
  DType type = DType::f32;
  bool reference = false;
  int64_t window = 0;
  double softcap = 0;
  static constexpr int64_t H = 4, G = 2, K = 32, C = (H + G) * K, W = C + G * K, kLayers = 2;

  SequenceLayout layout() const {
    const bool conv = preparation == Preparation::cca;
    return {kLayers, G, K, type, conv ? C : 0, conv ? G * K / 2 : 0, 0};
  }
};

/// The attention of one layer with its preparation and parameters.
class Layer {
 public:
  Layer(const Variant& s, int64_t index) : s_(s), index_(index) {
    using S = Variant;
    const auto stream = static_cast<uint64_t>(100 * index);
    parameters_.emplace_back(Shape{S::C, 2}, DType::f32, draw(stream, 2 * S::C, 0.5));
    parameters_.emplace_back(Shape{S::C}, DType::f32, draw(stream + 1, S::C, 0.5));
    parameters_.emplace_back(Shape{S::H + S::G, S::K, 2 * S::K}, s.type,
                             draw(stream + 2, S::C * 2 * S::K, 0.2));
    parameters_.emplace_back(Shape{S::C}, DType::f32, draw(stream + 3, S::C, 0.5));
    parameters_.emplace_back(Shape{S::G}, DType::f32, draw(stream + 4, S::G, 0.3, 1));
    parameters_.emplace_back(Shape{S::K}, DType::f32, draw(stream + 5, S::K, 0.3, 1));
    parameters_.emplace_back(Shape{S::K}, DType::f32, draw(stream + 6, S::K, 0.3, 1));
  }

  /// x: packed projections. Returns o.
  Owned forward(const Tensor& x, const BatchLayout& rows) const {
    using S = Variant;
    std::vector<int32_t> positions;
    for (const SequenceSpan& span : rows.spans)
      for (int64_t t = 0; t < span.rows; ++t) positions.push_back(static_cast<int32_t>(span.past + t));
    const Tensor position = Tensor::of(positions.data(), {rows.count});
    const auto p = [&](size_t i) { return parameters_[i].tensor; };
    std::vector<Owned> prepared;
    if (s_.preparation == Preparation::cca)
      prepared = run(cca_op(), AttrBox(CcaAttr{S::H, S::G, S::K, {1e4, 16}, s_.type, &rows, index_}),
                     {x, position, p(0), p(1), p(2), p(3), p(4)});
    else
      prepared =
          run(qk_prepare_op(), AttrBox(QkPrepareAttr{S::H, S::G, S::K, {1e4, 16}, true, 1e-6, s_.type}),
              {x, position, p(5), p(6)});
    return std::move(run(attention_op(),
                         AttrBox(AttentionAttr{S::H, S::G, S::K, 0, s_.window, s_.softcap, &rows, index_}),
                         {prepared[0].tensor})[0]);
  }

 private:
  std::vector<Owned> run(const Op& op, const AttrBox& attr, const std::vector<Tensor>& in) const {
    std::vector<TensorMeta> metas(op.outputs.size());
    OpCall call{attr.data(), in, {}, {}, {}};
    op.infer(call, metas);
    std::vector<Owned> owned;
    std::vector<Tensor> out;
    for (const TensorMeta& m : metas) owned.emplace_back(m.shape, m.dtype);
    for (const Owned& o : owned) out.push_back(o.tensor);
    call.out = out;
    std::vector<std::byte> scratch(
        static_cast<size_t>(op.scratch_bytes != nullptr ? op.scratch_bytes(call) : 0) + 64);
    call.scratch = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    (s_.reference ? op.kernels.back() : op.kernels.front()).forward(call);
    return owned;
  }

  Variant s_;
  int64_t index_;
  std::vector<Owned> parameters_;
};

/// Two layers side by side (both get the same rows) over a set of documents.
class Bench {
 public:
  Bench(const Variant& s, std::vector<int64_t> lengths) : s_(s), lengths_(std::move(lengths)) {
    for (int64_t l = 0; l < Variant::kLayers; ++l) layers_.emplace_back(s, l);
    for (size_t d = 0; d < lengths_.size(); ++d)
      documents_.emplace_back(Shape{lengths_[d], Variant::W}, s.type,
                              draw(1000 + d, lengths_[d] * Variant::W, 1));
  }

  using Result = std::vector<std::vector<std::byte>>;  ///< o of both layers, row by row, per document

  Result packed() const {
    BatchLayout rows;
    for (const int64_t n : lengths_) {
      rows.spans.push_back({rows.count, n, 0, nullptr});
      rows.count += n;
    }
    Result result(lengths_.size());
    call(rows, std::vector<int64_t>(lengths_.size(), 0), documents_order(), result);
    return result;
  }

  /// All documents advance together by `chunk` tokens a call, each in its own state.
  Result chunked(int64_t chunk) const {
    SequenceStore store(s_.layout(), 1000);
    std::vector<SequenceState> states;
    for (size_t d = 0; d < lengths_.size(); ++d) states.push_back(store.create());
    Result result(lengths_.size());
    while (step(states, chunk, result)) {
    }
    return result;
  }

  /// The first half in one state, then a fork: original and fork continue in different calls and chunk sizes.
  std::pair<Result, Result> forked() const {
    SequenceStore store(s_.layout(), 1000);
    std::vector<SequenceState> states, forks;
    for (size_t d = 0; d < lengths_.size(); ++d) states.push_back(store.create());
    Result result(lengths_.size());
    for (int i = 0; i < 3; ++i) step(states, 11, result);
    for (const SequenceState& s : states) forks.push_back(s.fork());
    Result other = result;
    for (bool more = true; more;) {
      more = step(states, 5, result);
      more = step(forks, 17, other) || more;
    }
    return {result, other};
  }

 private:
  std::vector<size_t> documents_order() const {
    std::vector<size_t> order;
    for (size_t d = 0; d < lengths_.size(); ++d) order.push_back(d);
    return order;
  }

  bool step(std::vector<SequenceState>& states, int64_t chunk, Result& result) const {
    BatchLayout rows;
    std::vector<int64_t> begins;
    std::vector<size_t> order;
    for (size_t d = 0; d < lengths_.size(); ++d) {
      const int64_t past = states[d].tokens(), n = std::min(chunk, lengths_[d] - past);
      if (n == 0) continue;
      rows.spans.push_back({rows.count, n, past, &states[d]});
      rows.count += n;
      begins.push_back(past);
      order.push_back(d);
    }
    if (rows.count == 0) return false;
    call(rows, begins, order, result);
    return true;
  }

  void call(const BatchLayout& rows, const std::vector<int64_t>& begins, const std::vector<size_t>& order,
            Result& result) const {
    Owned x({rows.count, Variant::W}, s_.type);
    for (size_t i = 0; i < order.size(); ++i) {
      const SequenceSpan& span = rows.spans[i];
      const Tensor from = documents_[order[i]].tensor.slice(begins[i], begins[i] + span.rows);
      if (span.rows > 0)
        std::memcpy(x.tensor.slice(span.row_begin, rows.count).data, from.data,
                    static_cast<size_t>(from.bytes()));
    }
    std::vector<Owned> o;
    for (const Layer& layer : layers_) o.push_back(layer.forward(x.tensor, rows));
    for (size_t i = 0; i < order.size(); ++i)
      for (int64_t r = 0; r < rows.spans[i].rows; ++r)
        for (const Owned& layer : o) {
          const Tensor row = layer.tensor.slice(rows.spans[i].row_begin + r, rows.spans[i].row_begin + r + 1);
          const auto* bytes = static_cast<const std::byte*>(row.data);
          result[order[i]].insert(result[order[i]].end(), bytes, bytes + row.bytes());
        }
  }

  Variant s_;
  std::vector<int64_t> lengths_;
  std::vector<Layer> layers_;
  std::vector<Owned> documents_;
};

std::vector<Variant> variants() {
  std::vector<Variant> list;
  for (const Preparation p : {Preparation::qk, Preparation::cca})
    for (const DType type : {DType::f32, DType::bf16})
      for (const bool reference : {false, true}) {
        list.push_back({p, type, reference, 0, 0});
        if (!reference) list.push_back({p, type, reference, 40, 0});
        if (!reference) list.push_back({p, type, reference, 0, 20});
      }
  return list;
}

std::string describe(const Variant& s) {
  return fmt::format("{} {} {} window {} cap {}", s.preparation == Preparation::cca ? "cca" : "qk",
                     name_of(s.type), s.reference ? "reference" : "fast", s.window, s.softcap);
}

TEST(SequenceInvariance, PackedChunkedAndDecodedTokensHaveTheSameBits) {
  for (const Variant& s : variants()) {
    const Bench bench(
        s, s.reference ? std::vector<int64_t>{30, 1, 67} : std::vector<int64_t>{70, 1, 0, 129, 3, 200});
    const auto packed = bench.packed();
    for (const int64_t chunk : {1, 7, 64})
      EXPECT_TRUE(bench.chunked(chunk) == packed) << describe(s) << " chunk " << chunk;
  }
}

TEST(SequenceInvariance, ForksAreCopies) {
  for (const Variant& s : variants()) {
    const Bench bench(s, s.reference ? std::vector<int64_t>{50, 2, 40} : std::vector<int64_t>{100, 2, 150});
    const auto packed = bench.packed();
    const auto [original, fork] = bench.forked();
    EXPECT_TRUE(original == packed) << describe(s);
    EXPECT_TRUE(fork == packed) << describe(s);
  }
}

TEST(SequenceInvariance, ThreadsAndInstructionSets) {
  const Isa best = active_isa();
  for (const Variant& s : variants()) {
    if (s.reference) continue;
    const Bench bench(s, {70, 1, 129});
    const auto expected = bench.packed();
    {
      const OtherThreads others;
      EXPECT_TRUE(bench.packed() == expected) << describe(s);
    }
    for (const Isa isa : kEveryIsa) {
      if (!isa_available(isa)) continue;
      force_isa(isa);
      EXPECT_TRUE(bench.packed() == expected) << describe(s) << ' ' << isa_name(isa);
      EXPECT_TRUE(bench.chunked(9) == expected) << describe(s) << ' ' << isa_name(isa);
    }
    force_isa(best);
  }
}

/// The comparison detects a fault: one document instead of two gives other bits after the boundary.
TEST(SequenceInvariance, AMissingResetWouldBeSeen) {
  for (const Preparation p : {Preparation::qk, Preparation::cca}) {
    const Variant s{p, DType::f32, false, 0, 0};
    const Layer layer(s, 0);
    const Owned x({20, Variant::W}, s.type, draw(5, 20 * Variant::W, 1));
    BatchLayout two{20, {{0, 10, 0, nullptr}, {10, 10, 0, nullptr}}}, one{20, {{0, 20, 0, nullptr}}};
    const Owned a = layer.forward(x.tensor, two), b = layer.forward(x.tensor, one);
    const auto row = static_cast<size_t>(Variant::H * Variant::K) * 4;
    EXPECT_EQ(0, std::memcmp(a.bytes.data(), b.bytes.data(), 10 * row));
    for (size_t r = 10; r < 20; ++r)
      EXPECT_NE(0, std::memcmp(a.bytes.data() + r * row, b.bytes.data() + r * row, row)) << r;
  }
}

}  // namespace ingot::test::sequence_invariance_test
