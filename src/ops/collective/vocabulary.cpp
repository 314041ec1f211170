// See vocabulary.h: the op. Each rank sends three numbers per row: lse, the target's logit (of its owner,
// else 0), and the mean logit lse - entropy; every rank then does the same sums, in rank order and in double.
#include "ops/collective/vocabulary.h"

#include <algorithm>
#include <cmath>

#include "ops/collective/transfer.h"
#include "ops/common.h"
#include "ops/reference.h"

namespace ingot {
namespace {

using namespace reference;

enum : size_t { kLogprob, kLse, kEntropy, kLocal, kTargets };  // inputs; the first three are also the outputs

void forward(const OpCall& call) {
  Communicator& comm = group_of(call.attr<CollectiveAttr>().comm);
  const auto n = static_cast<size_t>(comm.size());
  const Array logprob_r = load(call.in[kLogprob]), lse_r = load(call.in[kLse]),
              entropy_r = load(call.in[kEntropy]);
  const auto local = load_ints(call.in[kLocal]), target = load_ints(call.in[kTargets]);
  const size_t rows = target.size();
  Array own(3 * rows), all(3 * rows * n);
  for (size_t t = 0; t < rows; ++t) {
    own[3 * t] = lse_r[t];
    own[3 * t + 1] = local[t] >= 0 ? logprob_r[t] + lse_r[t] : 0;
    own[3 * t + 2] = entropy_r.empty() ? 0 : lse_r[t] - entropy_r[t];
  }
  const auto count = static_cast<int64_t>(own.size());
  comm.all_gather(Tensor::of(own.data(), {count}), Tensor::of(all.data(), {count * comm.size()})).wait();
  Array logprob(rows), lse(rows), entropy(entropy_r.size());
  for (size_t t = 0; t < rows; ++t) {
    if (target[t] < 0) continue;
    const auto part = [&](size_t r) { return &all[3 * (r * rows + t)]; };
    double top = part(0)[0], sum = 0, logit = 0, mean = 0;
    for (size_t r = 1; r < n; ++r) top = std::max(top, part(r)[0]);
    for (size_t r = 0; r < n; ++r) sum += std::exp(part(r)[0] - top);
    lse[t] = top + std::log(sum);
    for (size_t r = 0; r < n; ++r) logit += part(r)[1], mean += std::exp(part(r)[0] - lse[t]) * part(r)[2];
    logprob[t] = logit - lse[t];
    if (!entropy.empty()) entropy[t] = lse[t] - mean;
  }
  store(call.out[kLogprob], logprob);
  store(call.out[kLse], lse);
  store(call.out[kEntropy], entropy);
}

/// With w = exp(lse_r - lse), the part's mass: d lse / d lse_r = w, d entropy / d lse_r = w (mean - mean_r)
/// and d entropy / d entropy_r = w.
void backward(const OpCall& call) {
  const Array lse_r = load(call.in[kLse]), entropy_r = load(call.in[kEntropy]), lse = load(call.out[kLse]),
              entropy = load(call.out[kEntropy]);
  const Array d_logprob = load(call.d_out[kLogprob]), d_lse = load(call.d_out[kLse]),
              d_entropy = load(call.d_out[kEntropy]);
  const auto local = load_ints(call.in[kLocal]), target = load_ints(call.in[kTargets]);
  Array to_logprob(target.size()), to_lse(target.size()), to_entropy(entropy_r.size());
  for (size_t t = 0; t < target.size(); ++t) {
    if (target[t] < 0) continue;
    const double w = std::exp(lse_r[t] - lse[t]), d = d_logprob.empty() ? 0 : d_logprob[t];
    to_logprob[t] = local[t] >= 0 ? d : 0;
    to_lse[t] = to_logprob[t] + w * ((d_lse.empty() ? 0 : d_lse[t]) - d);
    if (d_entropy.empty() || entropy.empty()) continue;
    to_lse[t] += d_entropy[t] * w * ((lse[t] - entropy[t]) - (lse_r[t] - entropy_r[t]));
    to_entropy[t] = d_entropy[t] * w;
  }
  store(call.d_in[kLogprob], to_logprob);
  store(call.d_in[kLse], to_lse);
  store(call.d_in[kEntropy], to_entropy);
}

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const Shape rows{call.in[kTargets].dim(0)};
  for (const size_t i : {kLogprob, kLse})
    INGOT_CHECK(call.in[i].shape() == rows, "{}", call.in[i].meta.str());
  for (const size_t i : {kLocal, kTargets})
    INGOT_CHECK(call.in[i].meta.shape == rows && call.in[i].dtype() == DType::i32, "{}",
                call.in[i].meta.str());
  for (const size_t i : {kLogprob, kLse, kEntropy}) out[i] = call.in[i].meta;
}

OpCost cost(const OpCall& call) {
  OpCost c{0, 0, 0, tensor_bytes(call)};
  c.wire_bytes[0] =
      24.0 * static_cast<double>(call.in[kTargets].dim(0)) * (call.attr<CollectiveAttr>().size() - 1);
  return c;
}

void dry_run(const OpCall& call, bool back) {
  if (!back) group_of(call.attr<CollectiveAttr>().comm).dry_run().wait();
}

std::string print(const void* attr) {
  return describe_group(static_cast<const CollectiveAttr*>(attr)->comm);
}

}  // namespace

const Op& merge_vocabulary_op() {
  static const Op op{
      .name = "merge_vocabulary",
      .inputs = {{"logprob"}, {"lse"}, {"entropy"}, {"local", InputKind::data}, {"targets", InputKind::data}},
      .outputs = {{"logprob"}, {"lse"}, {"entropy"}},
      .reads = always<BackwardReads{
          .input_in = slot_bit(kLse) | slot_bit(kEntropy) | slot_bit(kLocal) | slot_bit(kTargets),
          .input_out = slot_bit(kLse) | slot_bit(kEntropy)}>,
      .infer = infer,
      .cost = cost,
      .print = print,
      .kernels = transfer_kernels(forward, backward),
      .dry_run = dry_run,
      .axis_rule = group_rule<CollectiveAttr>(kRowwise, AxisType::shards, AxisType::replicate)};
  return op;
}

HeadResult merge_vocabulary(Tape& tape, Communicator* axis, const HeadResult& part, const Value& local_T,
                            const Value& targets_T) {
  auto o = tape.apply(merge_vocabulary_op(), CollectiveAttr{axis},
                      {part.logprob_T, part.lse_T, part.entropy_T, local_T, targets_T});
  return {std::move(o[0]), std::move(o[1]), std::move(o[2]), {}, {}};
}

}  // namespace ingot
