// Random graphs of small ops: whatever a tape keeps, recomputes, offloads, packs, defers or lets arrive late,
// the gradients have the same bits, nobody reads freed memory, and a dry run needs the same memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <random>

#include "comm/communicator.h"
#include "support/support.h"
#include "support/tape_pass.h"
#include "tape/backward.h"

namespace ingot::test::graphs_test {

constexpr int64_t kWidth = 4;  // columns of every value
constexpr int kParameters = 4;

/// Attributes of all ops here; whole: a merge that is not recomputed in part.
struct GraphAttr {
  bool whole = false;
};

double* data_of(const Tensor& t) {
  return t.as<double>();
}

/// The cotangent of an output, 0 where there is none.
double cotangent(const OpCall& call, size_t output, int64_t i) {
  return call.d_out[output].defined() ? data_of(call.d_out[output])[i] : 0;
}

void contribute(const GradSlot& g, int64_t i, double v) {
  if (g.wanted()) data_of(g.tensor)[i] = g.accumulate ? data_of(g.tensor)[i] + v : v;
}

/// Adds the column sums of f(i) to a parameter's gradient.
void contribute_columns(const GradSlot& g, int64_t elements, const std::function<double(int64_t)>& f) {
  for (int64_t j = 0; g.wanted() && j < kWidth; ++j) {
    double sum = 0;
    for (int64_t i = j; i < elements; i += kWidth) sum += f(i);
    contribute(g, j, sum);
  }
}

/// An op with one kernel, whose outputs have the shape of the first input.
Op base_op(const char* name, std::vector<InputSlot> inputs, std::vector<OutputSlot> outputs, Kernel kernel) {
  kernel.name = "reference";
  kernel.refuse = [](const OpCall&) -> const char* { return nullptr; };
  Op op{.name = name, .inputs = std::move(inputs), .outputs = std::move(outputs)};
  op.infer = [](const OpCall& call, std::span<TensorMeta> out) {
    for (TensorMeta& o : out) o = call.in[0].meta;
  };
  op.reads = [](const void*) { return BackwardReads{}; };
  op.cost = [](const OpCall&) { return OpCost{}; };
  op.scratch_bytes = [](const OpCall&) { return int64_t{64}; };
  op.print = [](const void*) { return std::string(); };
  op.kernels = {kernel};
  return op;
}

/// y = x * w, by columns; in one piece, or in slices of rows.
const Op& scale_op(bool row_sliced) {
  static const auto make = [](bool sliced) {
    Kernel k{};
    k.forward = [](const OpCall& c) {
      for (int64_t i = 0; i < c.in[0].numel(); ++i)
        data_of(c.out[0])[i] = data_of(c.in[0])[i] * data_of(c.in[1])[i % kWidth];
    };
    k.backward_input = [](const OpCall& c) {
      for (int64_t i = 0; c.d_in[0].wanted() && i < c.d_in[0].tensor.numel(); ++i)
        contribute(c.d_in[0], i, cotangent(c, 0, i) * data_of(c.in[1])[i % kWidth]);
    };
    k.backward_weight = [](const OpCall& c) {
      contribute_columns(c.d_in[1], c.in[0].numel(),
                         [&](int64_t i) { return cotangent(c, 0, i) * data_of(c.in[0])[i]; });
    };
    Op op = base_op(sliced ? "scale_rows" : "scale", {{"x"}, {"w", InputKind::weight}}, {{"y"}}, k);
    op.reads = [](const void*) { return BackwardReads{.input_in = slot_bit(1), .weight_in = slot_bit(0)}; };
    op.row_sliced = sliced;
    return op;
  };
  static const Op whole = make(false), sliced = make(true);
  return row_sliced ? sliced : whole;
}

/// y = v^2 / (1 + v^2), v = x + b; b is optional.
double shifted(const OpCall& c, int64_t i) {
  return data_of(c.in[0])[i] + (c.in[1].defined() ? data_of(c.in[1])[i % kWidth] : 0);
}
double squash_gradient(const OpCall& c, int64_t i) {
  const double v = shifted(c, i), q = 1 + v * v;
  return cotangent(c, 0, i) * 2 * v / (q * q);
}
const Op& squash_op() {
  static const Op op = [] {
    Kernel k{};
    k.forward = [](const OpCall& c) {
      for (int64_t i = 0; i < c.in[0].numel(); ++i) {
        const double v = shifted(c, i);
        data_of(c.out[0])[i] = v * v / (1 + v * v);
      }
    };
    k.backward_input = [](const OpCall& c) {
      for (int64_t i = 0; i < c.in[0].numel(); ++i) contribute(c.d_in[0], i, squash_gradient(c, i));
      contribute_columns(c.d_in[1], c.in[0].numel(), [&](int64_t i) { return squash_gradient(c, i); });
    };
    Op made = base_op("squash", {{"x"}, {"b", InputKind::parameter, true}}, {{"y"}}, k);
    made.reads = [](const void*) { return BackwardReads{.input_in = slot_bit(0) | slot_bit(1)}; };
    return made;
  }();
  return op;
}

/// stream = x + y, h = stream^2, slope = 2 stream; once the stream is there, h and slope follow from it
/// alone.
const Op& merge_op() {
  static const Op op = [] {
    Kernel k{};
    k.forward = [](const OpCall& c) {
      for (int64_t i = 0; i < c.in[0].numel(); ++i) {
        double s = data_of(c.in[0])[i];
        if (c.out[0].defined()) {  // else the stream is given instead of x
          s = 0.5 * (s + (c.in[1].defined() ? data_of(c.in[1])[i] : 0));
          data_of(c.out[0])[i] = s;
        }
        data_of(c.out[1])[i] = std::sin(s);
        data_of(c.out[2])[i] = std::cos(s);
      }
    };
    k.backward_input = [](const OpCall& c) {
      for (int64_t i = 0; i < c.out[2].numel(); ++i) {
        const double d = 0.5 * (cotangent(c, 0, i) + cotangent(c, 1, i) * data_of(c.out[2])[i]);
        contribute(c.d_in[0], i, d);
        contribute(c.d_in[1], i, d);
      }
    };
    Op made = base_op("merge", {{"x"}, {"y", InputKind::activation, true}},
                      {{"stream"}, {"h"}, {"slope", false}}, k);
    made.reads = [](const void*) { return BackwardReads{.input_out = slot_bit(2)}; };
    made.partial_recompute = [](const void* attr) -> std::optional<PartialRecompute> {
      if (static_cast<const GraphAttr*>(attr)->whole) return std::nullopt;
      return PartialRecompute{.output = 0, .input = 0, .others = 0, .attr = AttrBox(GraphAttr{true})};
    };
    return made;
  }();
  return op;
}

/// A transfer that moves its data only when it is waited for.
void move_late(const OpCall& call, std::function<void()> move) {
  struct Late final : Pending::State {
    explicit Late(std::function<void()> f) : move(std::move(f)) {}
    void wait() override { move(); }
    std::function<void()> move;
  };
  if (call.pending == nullptr) return move();
  *call.pending = Pending(std::make_unique<Late>(std::move(move)));
}

/// "Gathers" the rows of three ranks: x / 2, x (this rank's own) and -x.
const Op& gather_op() {
  static const Op op = [] {
    Kernel k{};
    k.forward = [](const OpCall& c) {
      move_late(c, [x = c.in[0], y = c.out[0], n = c.in[0].numel()] {
        for (int64_t i = 0; i < n; ++i) {
          data_of(y)[i] = 0.5 * data_of(x)[i];
          data_of(y)[n + i] = data_of(x)[i];
          data_of(y)[2 * n + i] = -data_of(x)[i];
        }
      });
    };
    k.backward_input = [](const OpCall& c) {
      if (!c.d_in[0].wanted()) return;
      move_late(c, [d = c.d_out[0], g = c.d_in[0], n = c.d_in[0].tensor.numel()] {
        for (int64_t i = 0; i < n; ++i)
          contribute(g, i, 0.5 * data_of(d)[i] + data_of(d)[n + i] - data_of(d)[2 * n + i]);
      });
    };
    Op made = base_op("gather", {{"x"}}, {{"y"}}, k);
    made.infer = [](const OpCall& call, std::span<TensorMeta> out) {
      out[0] = {Shape{3 * call.in[0].dim(0), kWidth}, DType::f64};
    };
    made.transfers = true;
    made.first_local_row = [](const OpCall& call) { return call.in[0].dim(0); };
    return made;
  }();
  return op;
}

/// y = x: a packed form that rounds nothing.
const Op& copy_op() {
  static const Op op = [] {
    Kernel k{};
    k.forward = [](const OpCall& c) { std::copy_n(data_of(c.in[0]), c.in[0].numel(), data_of(c.out[0])); };
    return base_op("copy", {{"x", InputKind::data}}, {{"y", false}}, k);
  }();
  return op;
}

enum class Fates { keep, recompute, offload, fp8, mixed };

/// Decides by chance, always in the same way.
class RandomPolicy final : public SlotPolicy {
 public:
  RandomPolicy(uint32_t seed, Fates fates) : seed_(seed), fates_(fates) {}
  SlotFate fate(const Op& op, int output, const Segment& segment) const override {
    std::seed_seq seed{seed_, static_cast<uint32_t>(op.name[0]), static_cast<uint32_t>(op.name[1]),
                       static_cast<uint32_t>(output), static_cast<uint32_t>(segment.first_node)};
    const uint32_t chance = std::mt19937(seed)();
    if (fates_ == Fates::mixed) return static_cast<SlotFate>(chance % 4);
    return chance % 3 == 0 ? SlotFate::keep : static_cast<SlotFate>(fates_);
  }
  std::optional<PackedForm> fp8_form(const TensorMeta& value) const override {
    return PackedForm{{&copy_op(), {}}, {&copy_op(), {}}, value.shape, value};
  }

 private:
  uint32_t seed_;
  Fates fates_;
};

/// The gradients of the parameters, and when each was finished.
class Sums final : public GradientSink {
 public:
  bool wants(int parameter) override { return parameter != 3; }
  GradSlot slot(int parameter) override {
    const auto p = static_cast<size_t>(parameter);
    return {Tensor::of(sums[p].data(), {1, kWidth}), contributions[p]++ > 0};
  }
  void finished(int parameter) override { order.push_back(parameter); }
  std::vector<std::vector<double>> sums{kParameters, std::vector<double>(kWidth)};
  std::vector<int> contributions = std::vector<int>(kParameters);
  std::vector<int> order;
};

struct Outcome {
  std::vector<std::vector<double>> gradients;  ///< parameters, then the input
  std::vector<int> finished;
  int64_t peak = 0, live_after = 0;
};

struct Graph {
  explicit Graph(uint32_t seed) : seed(seed), random(seed) {}

  uint32_t chance(uint32_t n) { return static_cast<uint32_t>(random() % n); }
  std::vector<double> values(int64_t n) {
    std::vector<double> v(static_cast<size_t>(n));
    for (double& x : v) x = 0.2 + static_cast<double>(chance(1000)) / 700;
    return v;
  }

  /// Runs the graph of this seed forward and backward.
  Outcome run(Arena& arena, TapeOptions options) {
    const int64_t rows = 2 + chance(3);
    std::vector<double> x = values(rows * kWidth);
    std::vector<std::vector<double>> weights;
    for (int i = 0; i < kParameters; ++i) weights.push_back(values(kWidth));
    std::deque<std::vector<double>> cotangents;
    Sums sums;
    options.sink = &sums;
    Outcome outcome;
    {
      Tape tape(arena, options);
      const Value input = tape.leaf(Tensor(x.data(), {rows, kWidth}, DType::f64, options.device), true);
      record(tape, input, weights, cotangents);
      Backward(tape).run();
      if (const Tensor g = tape.gradient(input); g.data != nullptr)
        outcome.gradients.emplace_back(data_of(g), data_of(g) + g.numel());
    }
    outcome.gradients.insert(outcome.gradients.end(), sums.sums.begin(), sums.sums.end());
    outcome.finished = sums.order;
    outcome.peak = arena.peak_bytes(), outcome.live_after = arena.live_bytes();
    return outcome;
  }

  /// Each op reads values among the last few; some outputs get cotangents.
  void record(Tape& tape, const Value& input, std::vector<std::vector<double>>& weights,
              std::deque<std::vector<double>>& cotangents) {
    std::deque<Value> recent{input};
    const auto pick = [&] {
      return recent[recent.size() - 1 - chance(static_cast<uint32_t>(recent.size()))];
    };
    const auto parameter = [&] {
      const uint32_t i = chance(kParameters);
      return tape.parameter(static_cast<int>(i),
                            Tensor(weights[i].data(), {1, kWidth}, DType::f64, tape.options().device));
    };
    std::vector<int32_t> seeded{input.id()};
    const int ops = 6 + static_cast<int>(chance(20));
    for (int n = 0; n < ops; ++n) {
      if (chance(3) == 0) tape.begin_segment(chance(2) == 0 ? "mlp" : "attention", n / 4);
      const Value x = pick();
      std::vector<Value> out;
      switch (chance(5)) {
        case 0:
          out = tape.apply(scale_op(chance(2) == 0), GraphAttr{}, {x, parameter()});
          break;
        case 1:
          out = tape.apply(squash_op(), GraphAttr{}, {x, chance(2) == 0 ? parameter() : Value()});
          break;
        case 2:
          if (x.dim(0) < 60) {
            recent.push_back(tape.apply(gather_op(), GraphAttr{}, {x}).front());
            out = tape.apply(scale_op(true), GraphAttr{}, {recent.back(), parameter()});
            break;
          }
          [[fallthrough]];
        default: {
          const Value y = pick();
          const bool fits = y.shape() == x.shape();
          out = tape.apply(merge_op(), GraphAttr{!fits}, {x, fits ? y : Value()});
          recent.push_back(out[1]);
        }
      }
      recent.push_back(out[0]);
      while (recent.size() > 4) recent.pop_front();
      const Value& last = recent.back();
      if ((n + 1 < ops && chance(5) != 0) || std::count(seeded.begin(), seeded.end(), last.id()) > 0)
        continue;
      seeded.push_back(last.id());
      cotangents.push_back(values(last.shape().numel()));
      tape.seed(last, Tensor(cotangents.back().data(), last.shape(), DType::f64, tape.options().device));
    }
  }

  uint32_t seed;
  std::mt19937 random;
};

TEST(TapeGraphs, EveryPolicyHasTheSameGradientsAndNobodyReadsFreedMemory) {
  const TempDir folder;
  const auto store = file_offload_store(folder.path());
  for (uint32_t seed = 1; seed <= 25; ++seed) {
    HeapArena plain;
    const Outcome keep = Graph(seed).run(plain, {});
    for (const std::vector<double>& g : keep.gradients)
      for (const double v : g) ASSERT_TRUE(std::isfinite(v)) << seed;
    for (const Fates fates : {Fates::keep, Fates::recompute, Fates::offload, Fates::fp8, Fates::mixed})
      for (const bool defer : {false, true}) {
        SCOPED_TRACE(fmt::format("seed {}, fates {}, defer {}", seed, static_cast<int>(fates), defer));
        const RandomPolicy policy(seed, fates);
        TapeOptions options{.defer_weight_gradients = defer, .policy = &policy, .offload_store = store.get()};
        PoisonArena poison;
        const Outcome real = Graph(seed).run(poison, options);
        EXPECT_EQ(real.gradients, keep.gradients);
        EXPECT_EQ(real.live_after, 0);
        options.device = DeviceKind::null;
        CountingArena counting;
        const Outcome dry = Graph(seed).run(counting, options);
        EXPECT_EQ(dry.peak, real.peak);
        EXPECT_EQ(dry.finished, real.finished);
        EXPECT_EQ(dry.live_after, 0);
      }
  }
}

}  // namespace ingot::test::graphs_test
