// The types of values on every axis. Every preset and small model, recorded for every rank of a list of
// layouts, has the collectives that it needs and no more, and its gradients are summed over the right ranks;
// and the mistakes that the check exists for are found, on each axis.
#include <gtest/gtest.h>

#include <set>

#include "models/presets.h"
#include "nn/moe/dispatcher.h"
#include "nn/tensor_region.h"
#include "ops/activation/activation.h"
#include "ops/add/add.h"
#include "ops/attention/attention.h"
#include "ops/cca/cca.h"
#include "ops/context/context_attention.h"
#include "ops/context/heads.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"
#include "ops/route/route.h"
#include "support/layout_cases.h"
#include "support/small_models.h"

namespace ingot::test::axis_types_ranks_test {

class AxisTypesOf : public testing::TestWithParam<CheckedLayout> {};

TEST_P(AxisTypesOf, EveryModelHasTheCollectivesThatItNeeds) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer leaves too few addresses for the plans of the largest presets";
#endif
  int checked = 0;
  const auto check = [&](const std::string& name, ModelConfig config) {
    if (divides_documents(GetParam())) config.moe.sequence_aux_coefficient = 0;  // needs whole documents
    if (!fits(config, GetParam())) return;
    SCOPED_TRACE(name);
    EXPECT_NO_THROW(EXPECT_EQ(
        check_layout(Decoder(config), dry_run_layout(GetParam(), config), {.sums_in_memory = true}), ""));
    ++checked;
  };
  for (const std::string& name : small_model_names()) {
    ModelConfig config = small_model_config(name);
    config.layers = std::max<int64_t>(config.layers, 4);  // so that four stages have one each
    if (config.moe.experts > 0) config.moe.aux_coefficient = 0.01;
    check(name, config);
    if (name != "moe") continue;
    config.moe.aux_scope = AuxScope::last_step;
    check(name + " of the last step's load", config);
  }
  for (const std::string& name : preset_names()) {
    ModelConfig config = model_preset(name);
    if (config.vocab == 0) config.vocab = 50257;
    if (GetParam().options.shards.level != ShardLevel::full) check(name, config);  // it takes memory
  }
  RecordProperty("models", checked);
  EXPECT_GE(checked, 15);
}

INSTANTIATE_TEST_SUITE_P(AxisTypes, AxisTypesOf, testing::ValuesIn(layout_cases()),
                         [](const auto& info) { return info.param.name; });

/// A sublayer, recorded on one rank of a layout.
struct Sublayer : DryRunTape {
  Sublayer(const ParameterTable& table, const DryRunRank& rank)
      : DryRunTape(table, rank), groups(rank.groups) {
    tape.begin_segment("mlp", 3);
    const int64_t own = rows() / (c.sequence_parallel ? c.tensor->size() : 1);
    const Value x = leaf({own, 4}, DType::f32);
    ValueTypes& types = received[x.id()];
    const std::pair<Axis, int> ranks_with_other_rows[] = {
        {Axis::data, groups.batch_ranks()},
        {Axis::context, groups.context().size()},
        {Axis::tensor, c.sequence_parallel ? c.tensor->size() : 1}};
    for (const auto& [axis, ranks] : ranks_with_other_rows)
      if (ranks > 1) types.set(axis, AxisType::rows);
    h = product(x, 0);
    routes = {h, leaf({own, 2}, DType::f32), leaf({own, 2}, DType::i32)};
  }
  Value product(const Value& x, int weight, const Value& bias = {}) {
    return linear(tape, DType::f32, x, c.param(weight), bias);
  }
  Value gelu(const Value& x) { return activation(tape, {ActivationKind::gelu, DType::f32}, x); }
  Value sum(const Value& a, const Value& b) { return add(tape, DType::f32, a, b); }
  std::unique_ptr<Dispatcher> dispatcher() {
    return make_dispatcher(c, {.experts = 4, .tokens = h.dim(0), .top_k = 2});
  }
  Value up(const Permutation& p) {
    return grouped_linear(tape, DType::f32, p.rows_RD, c.param(4), p.offsets);
  }
  Value down(const Permutation& p, const Value& x) {
    return grouped_linear(tape, DType::f32, x, c.param(5), p.offsets);
  }
  const RankGroups& groups;
  std::map<int32_t, ValueTypes> received;
  Value h;        ///< [rows, 4], outside of regions
  Tokens routes;  ///< h with two choices among four experts
};

/// Parameters of Sublayer.
ParameterTable sublayer_table() {
  ParameterTable table;
  const auto expert = [&](const char* name, const Shape& shape, int width) {
    ParameterSpec spec{name, shape, ParamRole::expert, Init::constant(0), 4, {}, {ShardAxis::expert, 0}};
    spec.width_shard = {ShardAxis::expert_tensor, width};
    table.add(std::move(spec));
  };
  table.add({"in", {4, 4}, ParamRole::matrix, Init::constant(0)});
  table.add({"up", {8, 4}, ParamRole::matrix, Init::constant(0), 1, {}, {ShardAxis::tensor, 0}});
  table.add({"down", {4, 8}, ParamRole::matrix, Init::constant(0), 1, {}, {ShardAxis::tensor, 1}});
  table.add({"bias", {4}, ParamRole::bias, Init::constant(0)});
  expert("expert_up", {4, 8, 4}, 1);
  expert("expert_down", {4, 4, 8}, 2);
  table.add({"qkv", {24, 4}, ParamRole::matrix, Init::constant(0)});
  const std::pair<const char*, Shape> cca_parameters[] = {{"depthwise", {16, 2}},
                                                          {"depthwise_bias", {16}},
                                                          {"grouped", {4, 4, 8}},
                                                          {"grouped_bias", {16}},
                                                          {"temperature", {2}}};
  for (const auto& [name, shape] : cca_parameters)
    table.add({name, shape, ParamRole::conv, Init::constant(0)});
  return table;
}

/// The errors of all ranks, which must be the same but for what only some do wrong.
std::string error_of(const CheckedLayout& layout, const std::function<void(Sublayer&)>& record) {
  const ParameterTable table = sublayer_table();
  std::set<std::string> errors;
  for (int r = 0; r < Grid(layout.grid).ranks(); ++r) {
    const DryRunRank rank(table, {Grid(layout.grid), layout.options, even_pipeline_layout(1, 1, 1, 0)}, r);
    Sublayer sublayer(table, rank);
    record(sublayer);
    try {
      axis_types(sublayer.c, rank.groups, sublayer.received);
    } catch (const Error& e) {
      errors.insert(e.what());
    }
  }
  EXPECT_LE(errors.size(), 1u);
  return errors.empty() ? "" : *errors.begin();
}

void expect(const std::string& error, const std::string& text) {
  EXPECT_NE(error.find(text), std::string::npos) << error;
}

TEST(AxisTypes, MistakesOnTheTensorAxisAreFound) {
  const CheckedLayout tp{"tp2", {.tp = 2}}, sequence{"sequence", {.tp = 2}, {.sequence_parallel = true}};
  for (const CheckedLayout& l : {tp, sequence})
    EXPECT_EQ(error_of(l,
                       [](Sublayer& m) {
                         const Value part =
                             m.product(m.product(enter_tensor_region(m.c, m.h), 1), 2, row_bias(m.c, 3));
                         m.sum(m.h, leave_tensor_region(m.c, part));
                       }),
              "");
  expect(error_of(tp, [](Sublayer& m) { m.product(m.h, 1); }),
         "on the tensor axis: op 'linear' of segment mlp in layer 3 (x replicated, weight sharded): it takes "
         "values that are shared, not replicated: copy_to_axis is missing");
  expect(error_of(sequence, [](Sublayer& m) { m.product(m.h, 1); }),
         "op 'linear' of segment mlp in layer 3 (x varying by rows, weight sharded): it takes values that "
         "are shared, not varying by rows: the other ranks' rows are missing");
  expect(error_of(tp, [](Sublayer& m) { m.sum(m.h, enter_tensor_region(m.c, m.h)); }),
         "op 'add' of segment mlp in layer 3 (a replicated, b shared): copy_to_axis is missing before 'a', "
         "whose cotangent is partial");
  expect(
      error_of(tp,
               [](Sublayer& m) { copy_to_axis(m.tape, m.c.tensor, copy_to_axis(m.tape, m.c.tensor, m.h)); }),
      "op 'copy_to_axis' of segment mlp in layer 3 (x shared): it takes values that are replicated, not "
      "shared");
  expect(error_of(tp, [](Sublayer& m) { m.gelu(m.product(m.product(enter_tensor_region(m.c, m.h), 1), 2)); }),
         "op 'activation' of segment mlp in layer 3 (x partial): a sum over the ranks is missing");
  expect(error_of(tp,
                  [](Sublayer& m) { m.sum(m.h, m.product(m.product(enter_tensor_region(m.c, m.h), 1), 2)); }),
         "op 'add' of segment mlp in layer 3 (a replicated, b partial): a sum over the ranks is missing");
  expect(error_of(tp, [](Sublayer& m) { reduce_from_axis(m.tape, m.c.tensor, m.h); }),
         "op 'reduce_from_axis' of segment mlp in layer 3 (x replicated): it takes values that are partial, "
         "not replicated");
  expect(
      error_of(tp,
               [](Sublayer& m) { m.product(m.product(enter_tensor_region(m.c, m.h), 1), 2, m.c.param(3)); }),
      "op 'linear' of segment mlp in layer 3 (x sharded, weight sharded, bias replicated): 'bias' is added "
      "to every partial sum: the first rank alone may");
  expect(error_of(sequence,
                  [](Sublayer& m) { all_gather_rows(m.tape, m.c.tensor, enter_tensor_region(m.c, m.h)); }),
         "op 'all_gather_rows' of segment mlp in layer 3 (x shared): it takes values that are varying by "
         "rows, not shared");
  // The gradient of one parameter would be a part here and whole there.
  expect(error_of(tp, [](Sublayer& m) { m.product(enter_tensor_region(m.c, m.h), 0); }),
         "op 'linear' of segment mlp in layer 3 (x shared, weight replicated): the gradient of parameter "
         "'in' is of other types elsewhere (tensor replicated)");
}

TEST(AxisTypes, MistakesOnTheContextAxisAreFound) {
  const CheckedLayout cp{"cp2", {.cp = 2}};
  const auto attr = [](int64_t heads) {
    return AttentionAttr{.heads = heads, .kv_heads = heads, .head_width = 4};
  };
  const auto context = [](Sublayer& m) { return ContextAttr{m.c.context, m.c.context_rows}; };
  const auto of_one_head = [&](Sublayer& m) {
    const HeadsAttr packed{context(m), {2, 2, 2}, {4, 4, 4}};
    return attention(m.tape, attr(1), rows_to_heads(m.tape, packed, m.product(m.h, 6))).o;
  };
  const auto convolved = [&](Sublayer& m, const Value& qkv) {
    const CcaAttr cca_attr{.heads = 2, .kv_heads = 2, .head_width = 4};
    const Value positions_T = m.leaf({qkv.dim(0)}, DType::i32);
    return cca(m.tape, cca_attr, qkv, positions_T,
               {m.c.param(7), m.c.param(8), m.c.param(9), m.c.param(10), m.c.param(11)});
  };
  EXPECT_EQ(
      error_of(cp,
               [&](Sublayer& m) {
                 m.product(heads_to_rows(m.tape, {context(m), {2}, {4}}, of_one_head(m)), 2);
                 m.product(context_attention(m.tape, {attr(2), context(m), true}, m.product(m.h, 6)).o, 2);
                 const Value qkv = without_halo(
                     m.tape, context(m), convolved(m, with_halo(m.tape, {context(m)}, m.product(m.h, 6))));
                 context_attention(m.tape, {attr(2), context(m), false}, qkv);
               }),
      "");
  expect(error_of(cp, [&](Sublayer& m) { attention(m.tape, attr(2), m.product(m.h, 6)); }),
         "on the context axis: op 'attention' of segment mlp in layer 3 (qkv varying by rows): it looks "
         "along sequences, of which each rank has some rows only");
  expect(error_of(cp, [&](Sublayer& m) { m.product(of_one_head(m), 0); }),
         "on the context axis: op 'linear' of segment mlp in layer 3 (x sharded, weight replicated): it "
         "cannot work on values that are sharded");
  expect(error_of(cp, [&](Sublayer& m) { convolved(m, m.product(m.h, 6)); }),
         "on the context axis: op 'cca' of segment mlp in layer 3 (qkv varying by rows, positions varying by "
         "rows, depthwise replicated, depthwise_bias replicated, grouped replicated, grouped_bias "
         "replicated, temperature replicated): it looks along sequences");
  expect(error_of(cp,
                  [&](Sublayer& m) {
                    attention(m.tape, attr(2),
                              convolved(m, with_halo(m.tape, {context(m)}, m.product(m.h, 6))));
                  }),
         "on the context axis: op 'attention' of segment mlp in layer 3 (qkv varying by rows with halo): it "
         "cannot work on");
  expect(error_of(cp, [&](Sublayer& m) { reduce_from_axis(m.tape, m.c.context, m.h); }),
         "on the context axis: op 'reduce_from_axis' of segment mlp in layer 3 (x varying by rows): it takes "
         "values that are partial");
}

TEST(AxisTypes, CountsOfOwnRowsAreSummands) {
  const auto routed = [](Sublayer& m, bool summed) {
    const RouteAttr attr{.experts = 4, .k = 2};
    const Value counts_E = route(m.tape, attr, m.h, {}, {}, {}).counts_E;
    route(m.tape, attr, m.h, {}, summed ? reduce_from_axis(m.tape, m.c.context, counts_E) : counts_E, {});
  };
  const CheckedLayout cp{"cp2", {.cp = 2}}, dp{"dp2", {.dp = 2}};
  EXPECT_EQ(error_of(cp, [&](Sublayer& m) { routed(m, true); }), "");
  EXPECT_EQ(error_of(dp, [&](Sublayer& m) { routed(m, false); }), "");  // of another micro-batch
  expect(error_of(cp, [&](Sublayer& m) { routed(m, false); }),
         "on the context axis: op 'route' of segment mlp in layer 3 (logits varying by rows, load partial): "
         "values that are varying by rows meet values that are partial");
}

TEST(AxisTypes, MistakesOnTheExpertsAxesAreFound) {
  const RankOptions gather{.dispatch = DispatchKind::all_gather},
      nodes{.dispatch = DispatchKind::hierarchical, .node_ranks = 2};
  const CheckedLayout ep{"ep2", {.dp = 2, .ep = 2}}, ep_gather{"gather", {.dp = 2, .ep = 2}, gather},
      hierarchical{"nodes", {.dp = 4, .ep = 4}, nodes}, etp{"etp2", {.dp = 2, .etp = 2}};
  const auto dispatch_and_combine = [](Sublayer& m, Dispatcher& d, const auto& work) {
    const Permutation p = d.finish_dispatch(m.c, d.dispatch(m.c, d.prepare_dispatch(m.c, m.routes)));
    m.sum(m.h, d.finish_combine(m.c, d.combine(m.c, d.prepare_combine(m.c, work(p), p))));
  };
  for (const CheckedLayout& l : {ep, ep_gather, hierarchical, etp})
    EXPECT_EQ(error_of(l,
                       [&](Sublayer& m) {
                         dispatch_and_combine(m, *m.dispatcher(),
                                              [&](const Permutation& p) { return m.down(p, m.up(p)); });
                       }),
              "");
  expect(
      error_of(ep,
               [](Sublayer& m) {
                 const auto d = m.dispatcher();
                 d->finish_dispatch(m.c, d->prepare_dispatch(m.c, m.routes));
               }),
      "on the expert axis: op 'permute' of segment mlp in layer 3 (x varying by rows, probs varying by rows, "
      "ids): it takes values that are shared, not varying by rows: the other ranks' rows are missing");
  expect(error_of(ep_gather,
                  [](Sublayer& m) {
                    const auto d = m.dispatcher();
                    d->dispatch(m.c, d->dispatch(m.c, m.routes));
                  }),
         "on the expert axis: op 'all_gather_rows' of segment mlp in layer 3 (x shared): it takes values "
         "that are varying by rows, not shared");
  expect(error_of(ep_gather,
                  [](Sublayer& m) {
                    const auto d = m.dispatcher();
                    const Permutation p = d->finish_dispatch(m.c, d->dispatch(m.c, m.routes));
                    m.gelu(d->prepare_combine(m.c, m.down(p, m.up(p)), p));
                  }),
         "on the expert axis: op 'activation' of segment mlp in layer 3 (x partial): a sum over the ranks is "
         "missing");
  // Only inside a node.
  expect(error_of(hierarchical,
                  [](Sublayer& m) {
                    const auto all = [&](const Value& x) {
                      return all_gather_rows(m.tape, m.c.expert_inside, x);
                    };
                    permute(m.tape, {0, 1}, all(m.routes.h_TD), all(m.routes.probs_TK), all(m.routes.ids_TK));
                  }),
         "on the expert nodes axis: op 'permute' of segment mlp in layer 3 (x varying by rows, probs varying "
         "by rows, ids varying by rows): it takes values that are shared, not varying by rows");
  expect(error_of(etp,
                  [&](Sublayer& m) {
                    dispatch_and_combine(m, *m.dispatcher(),
                                         [&](const Permutation& p) { return m.gelu(m.down(p, m.up(p))); });
                  }),
         "on the expert tensor axis: op 'activation' of segment mlp in layer 3 (x partial): a sum over the "
         "ranks is missing");
  expect(error_of(etp,
                  [&](Sublayer& m) {
                    dispatch_and_combine(m, *m.dispatcher(), [&](const Permutation& p) {
                      return reduce_from_axis(m.tape, m.c.expert, m.down(p, m.up(p)));
                    });
                  }),
         "on the expert tensor axis: op 'return_rows' of segment mlp in layer 3 (y replicated, sent, "
         "received shared): it takes values that are partial, not replicated");
}

TEST(AxisTypes, MistakesOnTheDataAxesAreFound) {
  const CheckedLayout dp{"dp2", {.dp = 2}},
      edp{"dp4_ep2", {.dp = 4, .ep = 2}, {.dispatch = DispatchKind::all_gather}};
  expect(error_of(dp, [](Sublayer& m) { reduce_from_axis(m.tape, &m.groups.data(), m.h); }),
         "on the data axis: op 'reduce_from_axis' of segment mlp in layer 3 (x varying by rows): it takes "
         "values that are partial, not varying by rows");
  expect(error_of(edp,
                  [](Sublayer& m) {
                    const auto d = m.dispatcher();
                    const Permutation p = d->finish_dispatch(m.c, d->dispatch(m.c, m.routes));
                    reduce_from_axis(m.tape, &m.groups.expert_data(),
                                     d->prepare_combine(m.c, m.down(p, m.up(p)), p));
                  }),
         "on the expert data axis: op 'reduce_from_axis' of segment mlp in layer 3 (x varying by rows): it "
         "takes values that are partial, not varying by rows");
}

/// The error of a model whose gradients are reduced so.
std::string error_of_sums(
    const char* model, const CheckedLayout& layout,
    const std::function<void(const ParameterTable&, DryRunRank&, GradientBuffer&)>& reduce) {
  ModelConfig config = small_model_config(model);
  config.layers = std::max<int64_t>(config.layers, 4);
  const Decoder decoder(config);
  try {
    check_layout(decoder, dry_run_layout(layout, config),
                 {.reduce = [&](DryRunRank& rank, GradientBuffer& g) { reduce(decoder.table(), rank, g); }});
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(AxisTypes, GradientsSummedOverWrongRanksAreFound) {
  const auto over = [](Communicator& group, const GradientBuffer& g, int p) {
    if (g.gradient(p).numel() > 0) group.all_reduce(g.gradient(p), g.gradient(p)).wait();
  };
  const auto each = [](const ParameterTable& table, const auto& f) {
    for (int p = 0; p < table.size(); ++p) f(p, table[p].role == ParamRole::expert);
  };
  const auto training = reduce_as_training_does;
  EXPECT_EQ(error_of_sums("moe", {"dp4_ep2", {.dp = 4, .ep = 2}}, training), "");
  // Nothing, all twice, and not on all ranks.
  expect(error_of_sums("llama", {"dp2", {.dp = 2}}, [](auto&&...) {}),
         "on the data axis: the gradient of 'embed.weight' (data partial) on rank 0 contains that of rank 1 "
         "0 times, not 1; it is summed over nothing");
  expect(
      error_of_sums("llama", {"dp2", {.dp = 2}},
                    [&](auto& t, DryRunRank& r, GradientBuffer& g) { training(t, r, g), training(t, r, g); }),
      "contains that of rank 0 2 times, not 1; it is summed over group 'data' of ranks 0 1 and group 'data' "
      "of ranks 0 1");
  expect(error_of_sums("llama", {"dp2", {.dp = 2}},
                       [&](auto& t, DryRunRank& r, GradientBuffer& g) {
                         if (r.groups.rank() == 0) training(t, r, g);
                       }),
         "the gradient of 'embed.weight': rank 0 sums it over group 'data', in which rank 1 takes no part");
  // Data ranks without context ranks; and without tensor ranks where those have other rows, or a part.
  const auto data_only = [&](auto& table, DryRunRank& r, GradientBuffer& g) {
    each(table, [&](int p, bool expert) { over(expert ? r.groups.expert_data() : r.groups.data(), g, p); });
  };
  expect(error_of_sums("llama", {"cp2", {.cp = 2}, {.context = ContextForm::ring}}, [](auto&&...) {}),
         "on the context axis: the gradient of 'embed.weight' (context partial) on rank 0 contains that of "
         "rank 1 0 times, not 1");
  expect(error_of_sums("llama", {"sequence", {.tp = 2}, {.sequence_parallel = true}}, data_only),
         "on the tensor axis: the gradient of 'layers.0.attention_norm.weight' (tensor partial) on rank 0 "
         "contains that of rank 1 0 times");
  expect(error_of_sums("record", {"tp2", {.tp = 2}}, data_only),
         "on the tensor axis: the gradient of 'layers.0.attention.value_scale.own' (tensor partial) on rank "
         "0 contains that of rank 1 0 times");
  // Tensor ranks that all have the same.
  expect(error_of_sums("llama", {"tp2", {.tp = 2}},
                       [&](auto& table, DryRunRank& r, GradientBuffer& g) {
                         each(table, [&](int p, bool) { over(r.groups.tensor(), g, p); });
                       }),
         "on the tensor axis: the gradient of 'embed.weight' (tensor sharded) on rank 0 contains that of "
         "rank 1 1 times, not 0; it is summed over group 'tensor' of ranks 0 1");
  // Experts over all data ranks, or over none.
  const auto all_data = [&](auto& table, DryRunRank& r, GradientBuffer& g) {
    each(table, [&](int p, bool) { over(r.groups.data(), g, p); });
  };
  expect(error_of_sums("moe", {"dp4_ep2", {.dp = 4, .ep = 2}}, all_data),
         "on the expert axis: the gradient of 'layers.0.moe.experts.gate_up.weight' (expert data partial, "
         "expert sharded) on rank 0 contains that of rank 1 1 times, not 0; it is summed over group 'data' "
         "of ranks 0 1 2 3");
  expect(error_of_sums("moe", {"dp2_etp2", {.dp = 2, .etp = 2}}, all_data),
         "on the expert tensor axis: the gradient of 'layers.0.moe.experts.gate_up.weight' (expert tensor "
         "sharded) on rank 0 contains that of rank 1 1 times, not 0");
  expect(error_of_sums(
             "moe", {"nodes", {.dp = 4, .ep = 4}, {.dispatch = DispatchKind::hierarchical, .node_ranks = 2}},
             all_data),
         "on the expert axis: the gradient of 'layers.0.moe.experts.gate_up.weight' (expert nodes sharded, "
         "expert sharded) on rank 0 contains that of rank 1 1 times, not 0");
  expect(error_of_sums("moe", {"dp4_ep2", {.dp = 4, .ep = 2}},
                       [&](auto& table, DryRunRank& r, GradientBuffer& g) {
                         each(table, [&](int p, bool expert) {
                           if (!expert) over(r.groups.data(), g, p);
                         });
                       }),
         "on the expert data axis: the gradient of 'layers.0.moe.experts.gate_up.weight' (expert data "
         "partial, expert sharded) on rank 0 contains that of rank 2 0 times, not 1");
  // What two stages hold.
  expect(error_of_sums("gpt2", {"pp2", {.pp = 2}}, data_only),
         "on the pipeline axis: the gradient of 'embed.weight' (pipeline partial) on rank 0 contains that of "
         "rank 1 0 times, not 1");
  expect(error_of_sums("gpt2", {"pp2_dp2", {.pp = 2, .dp = 2}},
                       [&](auto& t, DryRunRank& r, GradientBuffer& g) {
                         r.pipe.sum_over_stages(g), training(t, r, g);
                       }),
         "the gradient of 'embed.weight' (data partial, pipeline partial) on rank 0 contains that of rank 0 "
         "2 times, not 1");
}

/// What a collective's pair says of both directions is what its cost says; the pairs of other ops need no
/// transfer.
TEST(AxisTypes, CollectivesMoveWhatTheirPairsSay) {
  std::set<const Op*> seen;
  const auto look = [&](const DryRunStage& s) {
    for (const Node& node : s.tape.nodes()) {
      const AxisRule& rule = node.op->axis_rule;
      if (rule.on != AxisRule::On::group_axes || !seen.insert(node.op).second) continue;
      std::vector<Tensor> in, out;
      const auto meta = [&](int32_t id) {
        const TensorMeta m = id < 0 ? TensorMeta{} : Value(const_cast<Tape*>(&s.tape), id).meta();
        return id < 0 ? Tensor() : Tensor(nullptr, m.shape, m.dtype, DeviceKind::null);
      };
      for (const int32_t id : node.inputs) in.push_back(meta(id));
      for (const int32_t id : node.outputs) out.push_back(meta(id));
      const OpCost cost = node.op->cost({.attr_data = node.attr.data(), .in = in, .out = out});
      const bool within =
          rule.change.from == rule.change.to;  // attention: what is sent reaches the output only
      EXPECT_EQ(cost.wire_bytes[0] > 0, within || needs_transfer(rule.change)) << node.op->name;
      EXPECT_EQ(cost.wire_bytes[1] > 0, within || needs_transfer(backward_of(rule.change))) << node.op->name;
    }
  };
  const Decoder zaya(small_model_config("zaya"));
  const RankOptions sequence{.sequence_parallel = true}, gather{.dispatch = DispatchKind::all_gather},
      ring{.context = ContextForm::ring};
  for (const CheckedLayout& l : {CheckedLayout{"tp", {.tp = 2}},
                                 {"sequence", {.tp = 2}, sequence},
                                 {"heads", {.cp = 2}},
                                 {"ring", {.cp = 2}, ring},
                                 {"ep", {.dp = 2, .ep = 2}},
                                 {"gather", {.dp = 2, .ep = 2}, gather}})
    check_layout(zaya, dry_run_layout(l, zaya.config()), {.recorded = look});
  for (const Op* op : all_ops()) {
    const AxisRule& rule = op->axis_rule;
    ASSERT_FALSE(rule.passes.empty()) << op->name << " has no axis rule";
    EXPECT_EQ(rule.on == AxisRule::On::group_axes, seen.count(op) == 1) << op->name;
    const bool backward = op->kernels.back().backward_input != nullptr;
    if (rule.on != AxisRule::On::group_axes) {
      EXPECT_FALSE(needs_transfer(rule.change) || (backward && needs_transfer(backward_of(rule.change))))
          << op->name;
    }
    for (const AxisRule::Sharding& sharding : rule.sharded) {
      ASSERT_LT(static_cast<size_t>(sharding.input), op->inputs.size()) << op->name;
      EXPECT_FALSE(needs_transfer(sharding.change) || needs_transfer(backward_of(sharding.change)))
          << op->name;
    }
  }
}

TEST(AxisTypes, AnOpFromOutsideSaysWhatItDoes) {
  Op mine = activation_op();
  mine.name = "mine";
  mine.axis_rule = {};
  const CheckedLayout dp{"dp2", {.dp = 2}};
  const auto record = [&](Sublayer& m) {
    m.tape.apply(mine, ActivationAttr{ActivationKind::gelu, DType::f32}, {m.h, Value(), Value()});
  };
  expect(error_of(dp, record), "op 'mine' has no axis rule");
  mine.axis_rule = {.passes = kElementwise};
  EXPECT_EQ(error_of(dp, record), "");
}

}  // namespace ingot::test::axis_types_ranks_test
