// The seam, proven: small models in double on data, tensor, sequence, context and expert parallel thread ranks equal one rank. Initial
// weights are the same bits; loss, every gradient and the gradient norm agree to 1e-9 (max |difference| / max |one rank|).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "base/philox.h"
#include "comm/threads.h"
#include "ops/reference.h"
#include "parallel/rank_groups.h"
#include "support/small_models.h"
#include "train/step.h"

namespace ingot::test {
namespace {

using reference::Array;
constexpr int64_t kRows = 4, kLength = 16;

/// A rank's part of a global tensor, cut by the pieces of its parameter.
Array part_of(const ParameterSpec& spec, const Placement& placement, const Array& global) {
  const int rank = spec.shape.rank();
  const Shape local = local_shape(spec, placement);
  Array part(static_cast<size_t>(local.numel()));
  for (const ParameterPiece& p : pieces_of(spec, placement)) {
    const int64_t n = std::accumulate(p.extent.begin(), p.extent.end(), int64_t{1}, std::multiplies<>());
    for (int64_t i = 0; i < n; ++i) {
      int64_t rest = i, from = 0, to = 0, from_stride = 1, to_stride = 1;
      for (int d = rank - 1; d >= 0; --d) {
        const auto k = static_cast<size_t>(d);
        const int64_t at = rest % p.extent[k];
        rest /= p.extent[k];
        from += (p.global_offset[k] + at) * from_stride;
        to += (p.local_offset[k] + at) * to_stride;
        from_stride *= spec.shape[d];
        to_stride *= local[d];
      }
      part[static_cast<size_t>(to)] = global[static_cast<size_t>(from)];
    }
  }
  return part;
}

double relative_difference(const Array& found, const Array& expected, double floor) {
  EXPECT_EQ(found.size(), expected.size());
  double worst = 0, scale = floor;
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    worst = std::max(worst, std::abs(found[i] - expected[i]));
    scale = std::max(scale, std::abs(expected[i]));
  }
  return worst / scale;
}

double largest(const Array& a) {
  double m = 0;
  for (const double v : a) m = std::max(m, std::abs(v));
  return m;
}

struct Case {
  std::string model;
  GridShape grid;
  bool starve = false;       ///< every token goes to the first experts: the last expert rank gets no row
  bool mask_last = false;    ///< the last rows have no valid target
  bool recompute = false;    ///< every output that backward reads is computed again
  RankOptions options = {};
};

class RecomputeAll final : public SlotPolicy {
 public:
  SlotFate fate(const Op&, int, const Segment&) const override { return SlotFate::recompute; }
};

struct Outcome {
  double nll = 0;
  std::map<int64_t, Array> counts;  ///< router counts by layer
  double square_sum = 0;
};

/// The whole batch: rows with different numbers of documents, so ranks have different numbers of valid targets.
data::Batch whole_batch(const Case& c) {
  data::Batch b = packed_batch(kRows, kLength, {16, 9, 7, 5, 4, 3, 4, 1, 1, 2, 12}, 61);
  if (c.mask_last) std::fill(b.targets.begin() + kRows / 2 * kLength, b.targets.end(), data::kMasked);
  return b;
}

/// Router inputs of the step: routes to replay and the global load fractions of "the step before".
struct RouterFeed {
  std::vector<int32_t> forced;  ///< [T, k]; empty: none
  std::map<int64_t, std::vector<float>> load;
};

/// Forward and backward over rows [first, first + count) of the batch; gradients are of the mean loss over the whole batch.
Outcome run_rows(const Case& how, const Decoder& decoder, const WeightSet& weights, GradientBuffer& gradients,
                 const data::Batch& batch, int64_t first, int64_t count, const RouterFeed& feed, const RankGroups* groups) {
  MicroBatch mb = micro_batch(batch, first, count);
  std::optional<ContextRows> context_rows;
  std::vector<int32_t> ids, targets, positions;
  if (groups != nullptr && groups->context().size() > 1) {
    const ContextRows& rows =
        context_rows.emplace(mb.rows, kLength, mb.positions.as<int32_t>(), groups->context().rank(), groups->context().size());
    const auto share = [&](std::vector<int32_t>& values, Tensor& column) {
      values = rows.share_of(column.as<int32_t>());
      column = Tensor::of(values.data(), {rows.count()});
    };
    share(ids, mb.ids), share(targets, mb.targets), share(positions, mb.positions);
  }
  const int64_t tokens = mb.ids.dim(0);
  HeapArena arena;
  const RecomputeAll recompute;
  Tape tape(arena, {.policy = how.recompute ? &recompute : nullptr, .sink = &gradients});
  Context c{tape, weights, &mb.rows, tape.leaf(mb.positions)};
  if (groups != nullptr) groups->join(c);
  if (context_rows) c.context_rows = &*context_rows;
  const int64_t sharers = groups != nullptr && groups->options().sequence_parallel ? groups->tensor().size() : 1;
  const int64_t own = tokens / sharers;  // that this rank's routers see
  const int64_t k = decoder.config().moe.top_k, experts = decoder.config().moe.experts;
  for (const int64_t layer : decoder.moe_layers()) {
    RouterInputs& inputs = c.routers[layer];
    if (!feed.forced.empty())
      inputs.forced_ids_TK = Tensor::of(feed.forced.data(), {own, k});  // the same for every token
    if (feed.load.count(layer)) inputs.load_E = Tensor::of(feed.load.at(layer).data(), {experts});
  }
  gradients.begin_step();
  DecoderOutput out = decoder.forward(c, tape.leaf(mb.ids));
  const HeadResult h = decoder.head(c, {.mode = HeadMode::store}, out.hidden_TD, tape.leaf(mb.targets));
  Outcome o;
  for (const double lp : reference::load(h.logprob_T.tensor())) o.nll -= lp;
  for (const Metric& m : tape.metrics())
    if (m.name == "router_counts") o.counts[m.layer] = reference::load(m.value.tensor());
  Array d_logprob(static_cast<size_t>(tokens), -1.0 / static_cast<double>(batch.valid_targets));
  const double share = static_cast<double>(own) / (kRows * kLength);
  double d_aux = 0.01 * share, d_z = 0.001 * share;
  tape.seed(h.logprob_T, Tensor::of(d_logprob.data(), {tokens}));
  for (const BalanceLosses& b : out.balance) {
    tape.seed(b.aux, Tensor::of(&d_aux, {1}));
    tape.seed(b.z, Tensor::of(&d_z, {1}));
  }
  Cursor(tape).run();
  gradients.finish_step();
  return o;
}

void set_part(const Tensor& to, const Array& values) { reference::store(to, values); }

/// The one-rank run of a case.
struct OneRank {
  explicit OneRank(const Case& c) : how(c), decoder(small_model_config(c.model)), batch(whole_batch(c)) {
    WeightSet weights(decoder.table(), {}, Precision::f64());
    weights.initialize(5);
    for (int i = 0; i < weights.size(); ++i) {
      initial.push_back(reference::load(weights.master(i)));
      Array values = initial.back();
      if (decoder.table()[i].init.kind == Init::Kind::constant) {
        const Random random(5, RandomPurpose::test, static_cast<uint64_t>(i));
        for (size_t j = 0; j < values.size(); ++j) values[j] += 0.1 * random.normal(j);
      }
      set_part(weights.master(i), values);
      start.push_back(std::move(values));
    }
    const int64_t k = decoder.config().moe.top_k;
    if (c.starve)
      for (int64_t t = 0; t < kRows * kLength; ++t)
        for (int64_t j = 0; j < k; ++j) feed.forced.push_back(static_cast<int32_t>(j));
    GradientBuffer buffer(decoder.table(), {}, DType::f64);
    outcome = run_rows(how, decoder, weights, buffer, batch, 0, kRows, feed, nullptr);
    for (const auto& [layer, counts] : outcome.counts)
      for (const double n : counts)
        feed.load[layer].push_back(static_cast<float>(n / static_cast<double>(k * kRows * kLength)));
    outcome = run_rows(how, decoder, weights, buffer, batch, 0, kRows, feed, nullptr);
    for (int i = 0; i < weights.size(); ++i) {
      gradients.push_back(reference::load(buffer.gradient(i)));
      for (const double g : gradients.back()) outcome.square_sum += g * g;
      largest_gradient = std::max(largest_gradient, largest(gradients.back()));
    }
  }
  Case how;
  Decoder decoder;
  data::Batch batch;
  RouterFeed feed;
  std::vector<Array> initial, start, gradients;  ///< by parameter
  Outcome outcome;
  double largest_gradient = 0;
};

void all_reduce(Communicator& group, Array& values) {
  const Tensor t = Tensor::of(values.data(), {static_cast<int64_t>(values.size())});
  group.all_reduce(t, t).wait();
}

void compare_rank(const OneRank& one, const Grid& grid, ThreadRank& self) {
  const RankGroups groups(grid, self.rank(), [&](std::string name, const std::vector<int>& members) {
    return self.group(std::move(name), members);
  }, one.how.options);
  const ParameterTable& table = one.decoder.table();
  WeightSet weights(table, groups.placement(), Precision::f64());
  weights.initialize(5);
  for (int i = 0; i < table.size(); ++i) {
    const Array expected = part_of(table[i], groups.placement(), one.initial[static_cast<size_t>(i)]);
    EXPECT_EQ(reference::load(weights.master(i)), expected) << table[i].name;
    set_part(weights.master(i), part_of(table[i], groups.placement(), one.start[static_cast<size_t>(i)]));
  }
  GradientBuffer buffer(table, groups.placement(), DType::f64);
  const int64_t share = kRows / groups.batch_ranks();
  Outcome o = run_rows(one.how, one.decoder, weights, buffer, one.batch, groups.batch_rank() * share, share, one.feed, &groups);
  reduce_gradients(groups, table, buffer);
  Array nll{o.nll};
  all_reduce(groups.data(), nll);
  EXPECT_LE(std::abs(nll[0] - one.outcome.nll) / one.outcome.nll, 1e-12);
  for (auto& [layer, counts] : o.counts) {
    all_reduce(groups.tokens(), counts);
    EXPECT_EQ(counts, one.outcome.counts.at(layer)) << "layer " << layer;
  }
  for (int i = 0; i < table.size(); ++i) {
    if (!table[i].trainable) continue;
    const Array expected = part_of(table[i], groups.placement(), one.gradients[static_cast<size_t>(i)]);
    EXPECT_LE(relative_difference(reference::load(buffer.gradient(i)), expected, 1e-6 * one.largest_gradient), 1e-9)
        << table[i].name << " on rank " << self.rank();
  }
  const double square_sum = gradient_square_sum(groups, table, buffer);
  EXPECT_LE(std::abs(square_sum - one.outcome.square_sum) / one.outcome.square_sum, 1e-9);
}

class Layouts : public ::testing::TestWithParam<Case> {};

TEST_P(Layouts, EqualOneRank) {
  const Case& c = GetParam();
  const OneRank one(c);
  const Grid grid(c.grid);
  run_ranks(grid.ranks(), [&](ThreadRank& self) { compare_rank(one, grid, self); }, 60);
}

const RankOptions kSequence{.sequence_parallel = true}, kAllGather{.dispatch = DispatchKind::all_gather};
constexpr ContextForm kForms[] = {ContextForm::heads, ContextForm::gather, ContextForm::ring};

std::vector<Case> dense_cases() {
  const GridShape dp2{.dp = 2}, tp2{.tp = 2};
  std::vector<Case> all;
  for (const char* model : {"llama", "llama-window", "gpt2", "zaya-dense"})
    for (const GridShape& grid : {dp2, tp2, GridShape{.dp = 2, .tp = 2}}) {
      all.push_back({.model = model, .grid = grid});
      if (grid.tp == 1) continue;
      for (const bool recompute : {false, true})
        all.push_back({.model = model, .grid = grid, .recompute = recompute, .options = kSequence});
    }
  for (const char* model : {"mla", "mla-direct", "record", "llama-lora", "mla-lora"})
    for (const RankOptions& options : {RankOptions{}, kSequence}) all.push_back({.model = model, .grid = tp2, .options = options});
  all.push_back({.model = "gpt2", .grid = {.tp = 4}});
  all.push_back({.model = "gpt2", .grid = {.tp = 4}, .options = kSequence});
  all.push_back({.model = "llama", .grid = dp2, .mask_last = true});
  all.push_back({.model = "llama", .grid = tp2, .recompute = true});
  return all;
}

std::vector<Case> expert_cases() {
  const GridShape dp2{.dp = 2}, tp2{.tp = 2}, ep2{.dp = 2, .ep = 2};
  std::vector<Case> all;
  for (const char* model : {"moe", "moe-shared", "zaya"}) {
    for (const GridShape& grid : {dp2, tp2, ep2, GridShape{.dp = 4, .ep = 2}, GridShape{.dp = 2, .tp = 2, .ep = 2}})
      all.push_back({.model = model, .grid = grid});
    // Experts folded over data and tensor ranks; expert tensor ranks over either.
    for (const GridShape& grid :
         {GridShape{.tp = 2, .etp = 1}, GridShape{.tp = 2, .ep = 2, .etp = 1}, GridShape{.dp = 2, .tp = 2, .ep = 4, .etp = 1},
          GridShape{.tp = 2, .etp = 2}, GridShape{.dp = 2, .tp = 2, .ep = 2, .etp = 2}})
      for (const bool recompute : {false, true})
        all.push_back({.model = model, .grid = grid, .recompute = recompute, .options = kSequence});
    all.push_back({.model = model, .grid = {.dp = 2, .etp = 2}});
    all.push_back({.model = model, .grid = {.dp = 4, .ep = 2, .etp = 2}});
  }
  for (const char* model : {"moe-sigmoid", "moe-latent"})
    for (const GridShape& grid : {tp2, ep2}) all.push_back({.model = model, .grid = grid});
  all.push_back({.model = "moe-latent", .grid = {.tp = 2, .ep = 2, .etp = 1}, .options = kSequence});
  for (const RankOptions& options : {kAllGather, RankOptions{}})
    for (const bool recompute : {false, true}) {
      all.push_back({.model = "moe", .grid = {.dp = 4, .ep = 4}, .recompute = recompute, .options = options});
      all.push_back({.model = "moe", .grid = ep2, .starve = true, .recompute = recompute, .options = options});
      all.push_back({.model = "moe", .grid = {.dp = 4, .ep = 2, .etp = 2}, .starve = true, .recompute = recompute, .options = options});
    }
  all.push_back({.model = "moe", .grid = ep2, .mask_last = true});
  return all;
}

std::vector<Case> context_cases() {
  std::vector<Case> all;
  for (const ContextForm form : kForms) {
    for (const char* model : {"llama", "gpt2", "moe", "zaya"})
      for (const bool recompute : {false, true})
        all.push_back({.model = model, .grid = {.cp = 2}, .recompute = recompute, .options = {.context = form}});
    for (const char* model : {"llama-window", "llama-patterns", "record", "mla", "zaya-dense"})
      all.push_back({.model = model, .grid = {.cp = 2}, .options = {.context = form}});
    all.push_back({.model = "gpt2", .grid = {.cp = 4}, .options = {.context = form}});
    all.push_back({.model = "zaya", .grid = {.dp = 2, .cp = 2, .ep = 4}, .options = {.context = form}});
    all.push_back({.model = "moe", .grid = {.dp = 2, .cp = 2, .ep = 2}, .mask_last = true, .options = {.context = form}});
  }
  for (const ContextForm form : {ContextForm::gather, ContextForm::ring}) {
    all.push_back({.model = "zaya", .grid = {.cp = 4}, .options = {.context = form}});
    for (const char* model : {"llama", "moe", "zaya"}) {
      all.push_back({.model = model, .grid = {.cp = 2, .tp = 2}, .options = {.context = form}});
      all.push_back({.model = model, .grid = {.cp = 2, .tp = 2, .ep = 4, .etp = 1}, .options = {.sequence_parallel = true, .context = form}});
    }
  }
  return all;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  static const char* const kFormNames[] = {"", "_kvgather", "_ring"};
  std::string name = fmt::format("{}_dp{}_cp{}_tp{}_ep{}_etp{}{}{}{}{}{}{}", c.model, c.grid.dp, c.grid.cp, c.grid.tp, c.grid.ep,
                                 c.grid.etp, kFormNames[static_cast<int>(c.options.context)],
                                 c.options.sequence_parallel ? "_sequence" : "", c.starve ? "_starved" : "",
                                 c.mask_last ? "_masked" : "", c.recompute ? "_recompute" : "",
                                 c.options.dispatch == DispatchKind::all_gather ? "_gather" : "");
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Dense, Layouts, ::testing::ValuesIn(dense_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(ContextRanks, Layouts, ::testing::ValuesIn(context_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Experts, Layouts, ::testing::ValuesIn(expert_cases()), case_name);

/// The message of the error that building or running the layout ends with.
std::string refusal(const Case& c) {
  try {
    const OneRank one(c);
    run_ranks(Grid(c.grid).ranks(), [&](ThreadRank& self) { compare_rank(one, Grid(c.grid), self); }, 60);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(LayoutRefusals, NameWhatDoesNotFit) {
  const auto expect = [](const Case& c, const char* text) {
    EXPECT_NE(refusal(c).find(text), std::string::npos) << refusal(c);
  };
  expect({.model = "zaya", .grid = {.tp = 4}}, "conv_grouped.weight' [6, 8, 16] cannot be cut into 4 parts");
  expect({.model = "llama", .grid = {.tp = 4}}, "4 query and 2 key-value heads cannot be cut over 4 tensor ranks");
  expect({.model = "moe", .grid = {.tp = 2, .etp = 1}}, "must hold different tokens");
  expect({.model = "moe-sigmoid", .grid = {.tp = 2}, .options = kSequence}, "needs whole documents");
  expect({.model = "moe-sigmoid", .grid = {.cp = 2}}, "needs whole documents");
  expect({.model = "llama", .grid = {.cp = 4}}, "4 query and 2 key-value heads of a rank cannot be shared out over 4 context");
  expect({.model = "llama", .grid = {.cp = 3}}, "sequences of 16 tokens cannot be cut into 6 chunks");
}

}  // namespace
}  // namespace ingot::test
