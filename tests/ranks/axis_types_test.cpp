// The types of values on the tensor axis: every preset and small model, with and without sequence parallelism, recorded on the
// null device for every rank, needs no more and no fewer collectives than it has, and its parameters' gradients are what
// their specification says; and the mistakes that the check exists for are found.
#include <gtest/gtest.h>

#include <functional>

#include "models/decoder.h"
#include "ops/add/add.h"
#include "ops/activation/activation.h"
#include "ops/collective/collective.h"
#include "ops/linear/linear.h"
#include "parallel/axis_types.h"
#include "support/small_models.h"

namespace ingot::test {
namespace {

/// A rank of a group that exists on paper.
class PaperRank final : public Communicator {
 public:
  PaperRank(int rank, int size) : Communicator("paper", rank, size) {}

 private:
  Pending start(CommRequest r) override { fail("{} on paper", r.str()); }
  Pending start_message(const Tensor&, int, bool) override { fail("a message on paper"); }
};

Tensor paper(const Shape& shape, DType type) { return {nullptr, shape, type, DeviceKind::null}; }

/// One rank of a model's training pass on the null device.
struct PaperRun {
  PaperRun(const ModelConfig& config, int rank, int ranks, bool sequence)
      : decoder(config), tensor(rank, ranks),
        weights(decoder.table(), {.tensor_size = ranks, .tensor_rank = rank}, Precision::bf16(), Backing::nothing),
        sink(decoder.table(), weights.placement(), DType::f32, Backing::nothing),
        tape(arena, {.device = DeviceKind::null, .sink = &sink}), c{tape, weights} {
    c.tensor = &tensor;
    c.sequence_parallel = sequence;
    c.positions_T = tape.leaf(paper({kTokens}, DType::i32));
    DecoderOutput out = decoder.forward(c, tape.leaf(paper({kTokens}, DType::i32)));
    const Value targets_T = tape.leaf(paper({kTokens}, DType::i32));
    result = decoder.head(c, {.mode = HeadMode::store}, out.hidden_TD, targets_T);
    for (int64_t depth = 1; depth <= config.mtp.depths; ++depth)
      out = decoder.predict_ahead(c, out.stream_TD, tape.leaf(paper({kTokens}, DType::i32)), depth);
  }
  static constexpr int64_t kTokens = 8;
  Decoder decoder;
  PaperRank tensor;
  WeightSet weights;
  GradientBuffer sink;
  CountingArena arena;
  Tape tape;
  Context c;
  HeadResult result;
};

void check(const std::string& name, ModelConfig config, int ranks) {
  config.moe.sequence_aux_coefficient = 0;  // needs whole documents
  for (const bool sequence : {false, true})
    for (int rank = 0; rank < ranks; ++rank) {
      const PaperRun run(config, rank, ranks, sequence);
      const AxisTypes types = tensor_axis_types(run.c);
      EXPECT_EQ(types.values.at(run.result.logprob_T.id()), AxisType::replicate) << name;
      int parts = 0;
      for (const auto& [p, type] : types.gradients) {
        const ParameterSpec& spec = run.decoder.table()[p];
        parts += type == AxisType::partial;
        if (spec.shard.axis == ShardAxis::tensor) {
          EXPECT_EQ(type, AxisType::varying) << name << " " << spec.name;
        } else if (!sequence) {
          const bool whole = spec.tensor_gradient == TensorGradient::whole;
          EXPECT_EQ(type, whole ? AxisType::replicate : AxisType::partial) << name << " " << spec.name;
        } else if (spec.shard.axis == ShardAxis::none) {
          EXPECT_EQ(type, AxisType::partial) << name << " " << spec.name;
        }
      }
      EXPECT_TRUE(!sequence || parts > 0) << name;
    }
}

TEST(AxisTypes, EveryModelHasTheCollectivesThatItNeeds) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer leaves too few addresses for the plans of the largest presets";
#endif
  for (const std::string& name : small_model_names()) check(name, small_model_config(name), 2);
  int checked = 0;
  for (const std::string& name : preset_names()) {
    ModelConfig config = model_preset(name);
    if (config.vocab == 0) config.vocab = 50257;
    if (config.heads % 2 != 0 || config.kv_heads % 2 != 0) continue;  // refused
    check(name, config, 2);
    ++checked;
  }
  EXPECT_GE(checked, 20);
}

/// The error of a sublayer that is recorded by hand on two ranks: W_1 cut by rows, W_2 by columns.
std::string error_of(const std::function<void(Context&, const Value&, const Value&, const Value&)>& record) {
  ParameterTable table;
  table.add({"in", {4, 4}, ParamRole::matrix, Init::constant(0), 1, {}, {ShardAxis::none, 0}});
  table.add({"up", {8, 4}, ParamRole::matrix, Init::constant(0), 1, {}, {ShardAxis::tensor, 0}});
  table.add({"down", {4, 8}, ParamRole::matrix, Init::constant(0), 1, {}, {ShardAxis::tensor, 1}});
  WeightSet weights(table, {.tensor_size = 2}, Precision::f32(), Backing::nothing);
  GradientBuffer sink(table, weights.placement(), DType::f32, Backing::nothing);
  PaperRank tensor(0, 2);
  CountingArena arena;
  Tape tape(arena, {.device = DeviceKind::null, .sink = &sink});
  Context c{tape, weights};
  c.tensor = &tensor;
  tape.begin_segment("mlp", 3);
  const Value h = linear(tape, DType::f32, tape.leaf(paper({2, 4}, DType::f32)), c.param(0));
  try {
    record(c, h, c.param(1), c.param(2));
    tensor_axis_types(c);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(AxisTypes, MissingAndDoubledCollectivesAreFound) {
  const auto up = [](Context& c, const Value& h, const Value& w) { return linear(c.tape, DType::f32, h, w); };
  const auto expect = [](const std::string& error, const char* text) {
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  EXPECT_EQ(error_of([&](Context& c, const Value& h, const Value& a, const Value& b) {
              const Value part = up(c, up(c, copy_to_axis(c.tape, c.tensor, h), a), b);
              add(c.tape, DType::f32, h, reduce_from_axis(c.tape, c.tensor, part));
            }),
            "");
  expect(error_of([&](Context& c, const Value& h, const Value& a, const Value&) { up(c, h, a); }),
         "op 'linear' of segment mlp in layer 3 (x replicated, weight varying): copy_to_axis is missing before 'x'");
  expect(error_of([&](Context& c, const Value& h, const Value& a, const Value& b) {
           const Value part = up(c, up(c, copy_to_axis(c.tape, c.tensor, h), a), b);
           activation(c.tape, {ActivationKind::gelu, DType::f32}, part);
         }),
         "op 'activation' of segment mlp in layer 3 (x partial): a sum over the ranks is missing");
  expect(error_of([&](Context& c, const Value& h, const Value&, const Value&) { reduce_from_axis(c.tape, c.tensor, h); }),
         "op 'reduce_from_axis' of segment mlp in layer 3 (x replicated): it takes a partial value");
}

}  // namespace
}  // namespace ingot::test
