// See group_by_rank.h: the op's description, and its CPU kernel: both directions gather rows through the
// maps.
#include "ops/group_by_rank/group_by_rank.h"

#include <cstring>
#include <numeric>

#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/group_by_rank/call.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const Tensor &x = call.in[0], &probs = call.in[1], &ids = call.in[2];
  const auto& a = call.attr<GroupByRankAttr>();
  INGOT_CHECK(x.shape().rank() == 2 && ids.shape().rank() == 2 && ids.dim(0) == x.dim(0) &&
                  ids.dtype() == DType::i32 && probs.shape() == ids.shape(),
              "x {} probs {} ids {}", x.meta.str(), probs.meta.str(), ids.meta.str());
  INGOT_CHECK(a.ranks > 0 && a.copies > 0 && a.ranks % a.copies == 0 && a.experts % (a.ranks / a.copies) == 0,
              "{} experts on {} ranks, {} copies", a.experts, a.ranks, a.copies);
  const int64_t tokens = x.dim(0), k = ids.dim(1), most = std::min<int64_t>(k * a.copies, a.ranks),
                rows = a.bound > 0 ? std::min(tokens * most, a.ranks * a.bound) : tokens * most;
  out[0] = {Shape{rows, x.dim(1)}, x.dtype()};
  out[1] = {Shape{rows, k}, probs.dtype()};
  out[2] = {Shape{rows, k}, DType::i32};
  const Tensor& blocks = call.in[3];
  out[3] = {blocks.defined() ? Shape{a.ranks, blocks.numel()} : Shape{a.ranks}, DType::i32};
  out[4] = {Shape{rows}, DType::i32};
  out[5] = {Shape{tokens, most}, DType::i32};
  out[6] = {Shape{1}, DType::f32};
}

OpCost cost(const OpCall& call) {
  return {0, static_cast<double>(call.out[0].numel() + call.in[1].numel()), 0, tensor_bytes(call)};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const GroupByRankAttr*>(attr_data);
  return fmt::format("experts {}..{} on {} ranks, {} copies{}", a.first, a.first + a.experts - 1, a.ranks,
                     a.copies, a.bound > 0 ? fmt::format(", at most {} rows each", a.bound) : "");
}

/// The different ranks of one token's choices, ascending.
std::vector<int32_t> ranks_of(const GroupByRankAttr& a, const int32_t* ids, int64_t k) {
  std::vector<int32_t> ranks;
  for (int64_t j = 0; j < k; ++j) {
    INGOT_CHECK(ids[j] < 0 || (ids[j] >= a.first && ids[j] < a.first + a.experts), "expert {} of {}..{}",
                ids[j], a.first, a.first + a.experts - 1);
    for (int32_t copy = 0; copy < a.copies && ids[j] >= 0; ++copy) ranks.push_back(a.rank_of(ids[j]) + copy);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

bool is_on(const GroupByRankAttr& a, int32_t rank, int32_t id) {
  return id >= 0 && a.rank_of(id) == rank - rank % a.copies;
}

int64_t choices_on(const GroupByRankAttr& a, int32_t rank, const int32_t* ids, int64_t k) {
  return std::count_if(ids, ids + k, [&](int32_t id) { return is_on(a, rank, id); });
}

/// What the ranks have got so far.
class Taken {
 public:
  explicit Taken(const GroupByRankAttr& a) : a_(a), got_(static_cast<size_t>(a.ranks)) {}
  /// Whether the next token, one of `rank`'s, still goes there.
  bool take(int32_t rank, const int32_t* ids, int64_t k) {
    auto& [rows, choices] = got_[static_cast<size_t>(rank)];
    if (a_.bound > 0 && rows >= a_.bound) return false;
    const int64_t more = a_.choices > 0 ? choices_on(a_, rank, ids, k) : 0;
    if (a_.choices > 0 && choices + more > a_.choices) return false;
    ++rows, choices += more;
    return true;
  }

 private:
  struct Got {
    int64_t rows = 0, choices = 0;
  };
  const GroupByRankAttr& a_;
  std::vector<Got> got_;
};

/// The block of every token.
std::vector<int64_t> blocks_of(const Tensor& blocks, int64_t tokens) {
  std::vector<int64_t> block(static_cast<size_t>(tokens), 0);
  for (int64_t b = 0, t = 0; blocks.defined() && b < blocks.numel(); ++b)
    for (int64_t n = blocks.as<int32_t>()[b]; n > 0; --n) block[static_cast<size_t>(t++)] = b;
  return block;
}

void forward(const OpCall& call) {
  build_rank_map(call);
  const auto *token = call.out[4].as<int32_t>(), *ids = call.out[2].as<int32_t>();
  gather_tensor_rows({call.out[0], false}, call.in[0], token, 1);
  const int64_t k = call.in[2].dim(1);
  const auto* probs = call.in[1].as<float>();
  auto* to = call.out[1].as<float>();
  for (int64_t s = 0; s < call.out[4].numel(); ++s)
    for (int64_t j = 0; j < k; ++j) to[s * k + j] = ids[s * k + j] >= 0 ? probs[token[s] * k + j] : 0.0f;
}

void backward_input(const OpCall& call) {
  const GradSlot &d_x = call.d_in[0], &d_probs = call.d_in[1];
  const Tensor &d_rows = call.d_out[0], &d_weights = call.d_out[1];
  if (d_x.wanted()) {
    if (d_rows.defined())
      gather_tensor_rows(d_x, d_rows, call.out[5].as<int32_t>(), call.out[5].dim(1));
    else if (!d_x.accumulate && d_x.tensor.numel() > 0)
      std::memset(d_x.tensor.data, 0, static_cast<size_t>(d_x.tensor.bytes()));
  }
  if (!d_probs.wanted()) return;
  const std::vector<int32_t> rows = rows_of_choices(call);
  const int64_t k = call.in[2].dim(1);
  auto* to = d_probs.tensor.as<float>();
  const int64_t copies = call.attr<GroupByRankAttr>().copies;
  for (int64_t i = 0; i < d_probs.tensor.numel(); ++i) {
    float d = 0;
    for (int64_t copy = 0; copy < copies && d_weights.defined(); ++copy)
      if (const int32_t r = rows[static_cast<size_t>(i * copies + copy)]; r >= 0)
        d += d_weights.as<float>()[r * k + i % k];
    to[i] = d_probs.accumulate ? to[i] + d : d;
  }
}

/// Kernels of GPUs have two numbers of each rank there.
int64_t scratch_bytes(const OpCall& call) {
  return 2 * call.attr<GroupByRankAttr>().ranks * int64_t{sizeof(int32_t)};
}

}  // namespace

const char* refuse_group_by_rank(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call)) return reason;
  if (call.in[1].defined() && call.in[1].dtype() != DType::f32) return "choice weights other than f32";
  return nullptr;
}

void build_rank_map(const OpCall& call) {
  const auto& a = call.attr<GroupByRankAttr>();
  const int64_t tokens = call.in[2].dim(0), k = call.in[2].dim(1), most = call.out[5].dim(1);
  const auto* ids = call.in[2].as<int32_t>();
  auto *kept = call.out[2].as<int32_t>(), *count = call.out[3].as<int32_t>(),
       *token = call.out[4].as<int32_t>(), *row = call.out[5].as<int32_t>();
  std::fill(kept, kept + call.out[2].numel(), -1);
  const int64_t blocks = call.out[3].numel() / a.ranks;
  const std::vector<int64_t> block = blocks_of(call.in[3], tokens);
  std::fill(count, count + call.out[3].numel(), 0);
  std::fill(token, token + call.out[4].numel(), -1);
  std::fill(row, row + call.out[5].numel(), -1);
  std::vector<int32_t> next(static_cast<size_t>(a.ranks) + 1, 0);
  Taken counted(a);
  for (int64_t t = 0; t < tokens; ++t)
    for (const int32_t r : ranks_of(a, ids + t * k, k)) {
      if (!counted.take(r, ids + t * k, k)) continue;
      ++next[static_cast<size_t>(r) + 1];
      ++count[r * blocks + block[static_cast<size_t>(t)]];
    }
  std::partial_sum(next.begin(), next.end(), next.begin());
  Taken taken(a);
  int64_t dropped = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    int32_t* slot = row + t * most;
    for (const int32_t r : ranks_of(a, ids + t * k, k)) {
      if (!taken.take(r, ids + t * k, k)) {
        if (r % a.copies == 0) dropped += choices_on(a, r, ids + t * k, k);
        ++slot;
        continue;
      }
      const int32_t to = next[static_cast<size_t>(r)]++;
      token[to] = static_cast<int32_t>(t);
      *slot++ = to;
      for (int64_t j = 0; j < k; ++j)
        if (is_on(a, r, ids[t * k + j])) kept[to * k + j] = ids[t * k + j];
    }
  }
  *call.out[6].as<float>() = static_cast<float>(dropped);
}

std::vector<int32_t> rows_of_choices(const OpCall& call) {
  const auto& a = call.attr<GroupByRankAttr>();
  const int64_t k = call.in[2].dim(1), most = call.out[5].dim(1);
  const auto *ids = call.in[2].as<int32_t>(), *row = call.out[5].as<int32_t>();
  std::vector<int32_t> rows(static_cast<size_t>(call.in[2].numel() * a.copies), -1);
  for (int64_t t = 0; t < call.in[2].dim(0); ++t) {
    const std::vector<int32_t> ranks = ranks_of(a, ids + t * k, k);
    for (int64_t j = 0; j < k; ++j) {
      if (ids[t * k + j] < 0) continue;
      const auto place =
          std::lower_bound(ranks.begin(), ranks.end(), a.rank_of(ids[t * k + j])) - ranks.begin();
      std::copy_n(row + t * most + place, a.copies, rows.begin() + (t * k + j) * a.copies);
    }
  }
  return rows;
}

const Op& group_by_rank_op() {
  static const Op op{
      .name = "group_by_rank",
      .inputs = {{"x"}, {"probs"}, {"ids", InputKind::data}, {"blocks", InputKind::data, true}},
      .outputs = {{"rows"},
                  {"probs"},
                  {"ids", false},
                  {"rows_per_rank", false},
                  {"token", false},
                  {"row", false},
                  {"dropped", false}},
      .reads = always<BackwardReads{.input_in = slot_bit(2), .input_out = slot_bit(5)}>,
      .infer = infer,
      .cost = cost,
      .scratch_bytes = scratch_bytes,
      .print = print,
      .kernels = with_gpu_kernels(
          "group_by_rank",
          {{"cpu", refuse_group_by_rank, forward, backward_input, nullptr}, group_by_rank_reference()}),
      .axis_rule = {.passes = kRowwise}};
  return op;
}

RankRows group_by_rank(Tape& tape, const GroupByRankAttr& attr, const Value& x_TD, const Value& probs_TK,
                       const Value& ids_TK, const Value& blocks) {
  auto o = tape.apply(group_by_rank_op(), attr, {x_TD, probs_TK, ids_TK, blocks});
  return {std::move(o[0]), std::move(o[1]), std::move(o[2]), std::move(o[3]),
          std::move(o[4]), std::move(o[5]), std::move(o[6])};
}

}  // namespace ingot
