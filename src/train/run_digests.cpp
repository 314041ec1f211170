// See run_digests.h.
#include "train/run_digests.h"

#include <algorithm>

#include "base/host_name.h"
#include "comm/agree.h"
#include "report/json_lines.h"
#include "train/resume_check.h"
#include "train/run_layout.h"

namespace ingot {
namespace {

constexpr size_t index_of(CopyKind kind) {
  return static_cast<size_t>(kind);
}

const char* kind_in_words(CopyKind kind) {
  switch (kind) {
    case CopyKind::weights:
      return "weights";
    case CopyKind::experts:
      return "weights of experts";
    case CopyKind::state:
      return "optimizer state";
    case CopyKind::expert_state:
      return "optimizer state of experts";
    case CopyKind::common:
      return "counters, router biases or loads";
  }
  return "?";
}

bool due(int64_t step, int64_t every) {
  return every > 0 && step % every == 0;
}

}  // namespace

RunDigests::RunDigests(FileSystem& fs, TrainEngine& engine, const std::string& folder, int64_t step)
    : engine_(engine),
      config_(engine.recipe().health),
      world_(engine.ranks().groups().world()),
      agreed_(step),
      repeated_(step),
      replay_(engine) {
  start_ = {.step = step,
            .ranks = world_.size(),
            .kernels = kernel_set_of(engine.recipe()),
            .recipe = print_config(engine.recipe())};
  for (const std::string& line : describe_layout(engine.recipe()))
    start_.layout += (start_.layout.empty() ? "" : "; ") + line;
  hosts_ = all_gather_text(world_, host_name());
  std::array<int32_t, kCopyKinds> mine{};
  const auto groups = copy_groups();
  for (size_t k = 0; k < kCopyKinds; ++k) {  // a group is known by the world rank of its first member
    mine[k] = world_.rank();
    const Tensor t = Tensor::of(&mine[k], {1});
    if (groups[k]->size() > 1) groups[k]->broadcast(t, 0).wait();
  }
  std::vector<int32_t> all(mine.begin(), mine.end());
  if (world_.size() > 1) {
    all.resize(kCopyKinds * static_cast<size_t>(world_.size()));
    const auto count = static_cast<int64_t>(kCopyKinds);
    world_.all_gather(Tensor::of(mine.data(), {count}), Tensor::of(all.data(), {count * world_.size()}))
        .wait();
  }
  for (size_t k = 0; k < kCopyKinds; ++k)
    for (size_t r = 0; r < static_cast<size_t>(world_.size()); ++r)
      groups_[k].push_back(all[r * kCopyKinds + k]);
  if (engine.ranks().leads() && (config_.digest_every > 0 || config_.agree_every > 0))
    open(fs, folder + "/" + kDigestsFile);
}

void RunDigests::open(FileSystem& fs, const std::string& path) {
  // Starts that continue from one step have equal lines, so steps are not strictly ascending.
  keep_lines_until(fs, path, start_.step, false, [](std::string_view line, const std::string& where) {
    return step_of(parse_digest_line(line, where));
  });
  file_ = fs.open_append(path);
  write(to_json_line(start_));
}

void RunDigests::write(const std::string& line) {
  const std::string text = line + "\n";
  file_->append(text.data(), text.size());
}

void RunDigests::sync() {
  if (file_) file_->sync();
}

std::array<Communicator*, kCopyKinds> RunDigests::copy_groups() const {
  const RankGroups& g = engine_.ranks().groups();
  const bool sharded = engine_.recipe().parallel.shard != ShardLevel::none;
  const auto state = [&](FlatGroup group) {
    return sharded ? &g.replica_group(group) : &g.data_group(group);
  };
  return {&g.data_group(FlatGroup::matrices), &g.data_group(FlatGroup::experts), state(FlatGroup::matrices),
          state(FlatGroup::experts), &g.world()};
}

RunDigests::Held RunDigests::digests_of_held() {
  std::array<Digest, kCopyKinds> digests, moments;
  const WeightSet& w = engine_.model().weights();
  const ShardLevel level = engine_.recipe().parallel.shard;
  // Tensors are named by their number within the kind: ranks that hold copies of one may hold others of
  // other kinds, as stages of a pipeline do.
  std::array<uint64_t, kCopyKinds> counts{};
  const auto add_to = [&](std::array<Digest, kCopyKinds>& to, CopyKind kind, const void* data,
                          int64_t bytes) {
    const size_t k = index_of(kind);
    to[k].add(data, bytes, counts[k]++);
  };
  const auto add = [&](CopyKind kind, const void* data, int64_t bytes) {
    add_to(digests, kind, data, bytes);
  };
  const auto of = [&](int parameter, CopyKind dense, CopyKind expert) {
    return flat_group(w.table()[parameter]) == FlatGroup::experts ? expert : dense;
  };
  for (int i = 0; i < w.size(); ++i) {  // whole tensors: under ShardLevel::full no rank keeps them
    if (level == ShardLevel::full || !holds(w.placement(), w.table()[i])) continue;
    const bool copy = level == ShardLevel::optimizer && w.has_copy(i);  // its master is of the own shard only
    const Tensor t = copy ? w.compute(i) : w.master(i);
    add(of(i, CopyKind::weights, CopyKind::experts), t.data, t.bytes());
  }
  for (const ParamView& p : engine_.optimizer().params()) {
    if (level == ShardLevel::none) break;  // counted above
    add(of(w.table().find(p.name), CopyKind::state, CopyKind::expert_state), p.master.data,
        p.numel() * size_of(dtype_of(p.master.storage)));
  }
  engine_.visit_parameter_state([&](const TrainEngine::ParameterState& s) {
    add_to(moments, of(s.parameter, CopyKind::state, CopyKind::expert_state), s.values.data,
           s.values.bytes());
  });
  const auto add_common = [&](const Tensor& t) { add(CopyKind::common, t.data, t.bytes()); };
  engine_.visit_common_state([&](const std::string&, const Tensor& t) { add_common(t); });
  for (const int64_t layer : engine_.model().decoder().moe_layers())
    add_common(engine_.model().router_bias(layer));
  Held held;  // a digest of several pieces is the sum of theirs
  for (size_t k = 0; k < kCopyKinds; ++k) held.copies[k] = digests[k].value() + moments[k].value();
  held.moments = {moments[index_of(CopyKind::state)].value(),
                  moments[index_of(CopyKind::expert_state)].value()};
  return held;
}

Digest* RunDigests::begin_step(int64_t step) {
  gradient_.clear();
  return due(step, config_.digest_every) || replays(step) ? &gradient_ : nullptr;
}

void RunDigests::gather(StepDigests& d, bool with_gradients, bool with_copies) {
  std::vector<int64_t> mine;
  if (with_gradients) mine.push_back(static_cast<int64_t>(gradient_.value()));
  if (with_copies) {
    const Held held = digests_of_held();
    for (const uint64_t digest : held.copies) mine.push_back(static_cast<int64_t>(digest));
    for (const uint64_t digest : {held.moments.state, held.moments.expert_state})
      mine.push_back(static_cast<int64_t>(digest));
  }
  const size_t count = mine.size();
  const auto ranks = static_cast<size_t>(world_.size());
  std::vector<int64_t> all(mine);
  if (ranks > 1 && count > 0) {
    all.resize(count * ranks);
    world_
        .all_gather(Tensor::of(mine.data(), {static_cast<int64_t>(count)}),
                    Tensor::of(all.data(), {static_cast<int64_t>(count * ranks)}))
        .wait();
  }
  for (size_t r = 0; r < ranks && count > 0; ++r) {
    auto at = all.begin() + static_cast<int64_t>(r * count);
    if (with_gradients) d.gradients.push_back(static_cast<uint64_t>(*at++));
    if (!with_copies) continue;
    std::copy_n(at, kCopyKinds, d.copies.emplace_back().begin());
    at += kCopyKinds;
    d.moments.push_back({static_cast<uint64_t>(at[0]), static_cast<uint64_t>(at[1])});
  }
}

const StepDigests& RunDigests::end_step(int64_t step, bool agrees) {
  last_ = {.step = step};
  const bool with_copies = config_.agree_every > 0 && (agrees || due(step, config_.agree_every));
  gather(last_, due(step, config_.digest_every), with_copies);
  if (file_ && !(last_.gradients.empty() && last_.copies.empty())) write(to_json_line(last_));
  if (!with_copies) return last_;
  if (const auto found = find_disagreement(last_, groups_)) stop_copies(*found, step);
  agreed_ = step;
  return last_;
}

void RunDigests::require_agreement(int64_t step) {
  if (config_.agree_every == 0) return;
  StepDigests now{.step = step};
  gather(now, false, true);
  if (const auto found = find_disagreement(now, groups_)) stop_copies(*found, step);
}

std::vector<Suspect> RunDigests::suspects(const std::vector<int>& ranks) const {
  std::vector<Suspect> all;
  for (const int r : ranks) all.push_back({hosts_[static_cast<size_t>(r)], r});
  return all;
}

namespace {

std::string names_of(const std::vector<Suspect>& suspects) {
  std::string text;
  for (const Suspect& s : suspects)
    text += fmt::format("{}rank {} on '{}'", text.empty() ? "" : ", ", s.rank, s.node);
  return text;
}

}  // namespace

void RunDigests::stop_copies(const Disagreement& found, int64_t step) const {
  std::string what;
  for (const CopyKind kind : found.kinds)
    what += (what.empty() ? "" : ", ") + std::string(kind_in_words(kind));
  const std::string who = names_of(suspects(found.ranks));
  stop(found,
       fmt::format("step {}: ranks that must hold the same bits do not ({}); {}. They last agreed at step {}",
                   step, what,
                   found.named ? fmt::format("what most of {} copies hold differs from what these do: {}",
                                             found.copies, who)
                               : fmt::format("{} copies have no majority, so each of these is a suspect: {}",
                                             found.copies, who),
                   agreed_),
       "resumes from a checkpoint at which all copies were equal", agreed_ + 1);
}

void RunDigests::end_replay(int64_t step, const data::Batch& batch, const StepOptions& options) {
  const auto found = replay_.compare(gradient_.value(), batch, options);
  if (!found) {
    repeated_ = step + 1;
    return;
  }
  require_agreement(step);  // other weights give another gradient
  const std::string who = names_of(suspects(found->ranks));
  stop(*found,
       fmt::format(
           "step {}: a gradient that was made twice has different bits; {}. They were last equal at step {}",
           step + 1,
           found->named
               ? fmt::format("what most of {} ranks made differs from what these did: {}", found->copies, who)
               : fmt::format("each of these is a suspect: {}", who),
           repeated_),
       fmt::format("resumes; a checkpoint of before step {} (--from) is certain to be sound", repeated_ + 1),
       repeated_ + 1);
}

void RunDigests::stop(const Disagreement& found, const std::string& what, const std::string& then,
                      int64_t trouble_step) const {
  RunError error(
      FailureKind::mismatch, what,
      "a memory, core or link of that machine gives wrong bits: test it or leave it out, and run the "
      "same command, which " +
          then,
      trouble_step);
  error.set_suspects(suspects(found.ranks), found.copies);
  throw error;
}

void RunDigests::keep_rest() {
  if (config_.check_at_rest) rest_ = digests_of_held();
}

void RunDigests::check_rest(int64_t step) {
  if (!rest_) return;
  std::vector<int32_t> changed(static_cast<size_t>(world_.size()));
  changed[static_cast<size_t>(world_.rank())] = digests_of_held() != *rest_;
  const Tensor t = Tensor::of(changed.data(), {world_.size()});
  if (world_.size() > 1) world_.all_reduce(t, t).wait();
  std::vector<int> ranks;
  for (int r = 0; r < world_.size(); ++r)
    if (changed[static_cast<size_t>(r)] != 0) ranks.push_back(r);
  if (ranks.empty()) return;
  const std::vector<Suspect> who = suspects(ranks);
  // The checkpoint of `step`, where there is one, may have been copied after the change.
  RunError error(
      FailureKind::mismatch,
      fmt::format("weights or optimizer state changed between the updates of steps {} and {}, "
                  "though nothing writes them there: {}",
                  step, step + 1, names_of(who)),
      fmt::format("the memory of that machine is at fault: test it or leave it out, and go back to "
                  "a checkpoint of before step {} (--from)",
                  step),
      step);
  error.set_suspects(who, 1);
  throw error;
}

}  // namespace ingot
