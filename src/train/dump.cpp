// See dump.h.
#include "train/dump.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/safetensors.h"
#include "report/run_record.h"
#include "tensor/convert.h"
#include "train/preflight.h"
#include "train/run_state.h"

namespace ingot {
namespace {

class Recorder final : public TapeObserver {
 public:
  void tensor(const std::string& name, const Tensor& t) override {
    if (index_.count(name) > 0) return;  // the first micro-batch only
    index_.insert(name);
    const auto* bytes = static_cast<const std::byte*>(t.data);
    memory_.emplace_back(bytes, bytes + t.bytes());
    names_.push_back(name);
    metas_.push_back(t.meta);
  }
  void write(FileSystem& fs, const std::string& path) const {
    std::vector<SafetensorsItem> items;
    for (size_t i = 0; i < names_.size(); ++i)
      items.push_back({names_[i], metas_[i].dtype, metas_[i].shape, memory_[i].data()});
    write_safetensors(fs, path, items, {{"order", nlohmann::json(names_).dump()}});
  }

 private:
  std::set<std::string> index_;
  std::vector<std::string> names_;
  std::vector<TensorMeta> metas_;
  std::vector<std::vector<std::byte>> memory_;
};

std::vector<double> values(const SafetensorsFile& file, const SafetensorsEntry& e) {
  const auto dtype = dtype_of_safetensors(e.dtype);
  if (!dtype) fail("'{}': tensor '{}' has type {}, which we do not read", file.path(), e.name, e.dtype);
  const auto data = file.data(e);
  std::vector<std::byte> copy(data.begin(), data.end());
  Shape shape;
  for (const int64_t n : e.shape) shape.push_back(n);
  const Tensor t(copy.data(), shape, *dtype);
  if (is_floating(*dtype)) return to_doubles(t);
  if (*dtype == DType::i32) {
    const auto ints = to_ints(t);
    return {ints.begin(), ints.end()};
  }
  return {};
}

}  // namespace

void dump_step(FileSystem& fs, const Recipe& given, const std::string& path) {
  const Recipe recipe = for_one_rank(given);
  const PreparedData data = prepare_data(fs, recipe);
  TrainEngine engine(with_vocabulary(recipe, data));
  const Preflight plan = preflight(engine, &data);
  engine.set_memory_policy(plan.recompute, plan.offload, std::filesystem::temp_directory_path().string());
  RunState state(fs, engine, data);
  const std::string& folder = recipe.run.folder;
  if (const auto newest = CheckpointReader::open_newest(fs, folder + "/" + run_files::kCheckpoints)) {
    if (newest->step() >= recipe.total_steps())
      throw Error(fmt::format("the run in '{}' is finished at step {}: there is no next step", folder,
                              newest->step()),
                  "name another --run.folder for the first step of a new run, or add steps");
    state.restore(*newest);
    state.enter_next_phase();
  } else {
    state.begin();
  }
  const PhaseSampler& sampler = state.sampler();
  Recorder recorder;
  StepOptions options = engine.options(sampler.phase(), sampler.micro_batch());
  options.observer = &recorder;
  engine.forward_backward(state.source().next(state.step()), options);
  recorder.write(fs, path);
}

DumpComparison compare_dumps(FileSystem& fs, const std::string& left_path, const std::string& right_path,
                             double tolerance) {
  const SafetensorsFile left(fs, left_path), right(fs, right_path);
  const auto order = left.metadata().find("order");
  const auto names = order == left.metadata().end() ? nlohmann::json()
                                                    : nlohmann::json::parse(order->second, nullptr, false);
  if (!names.is_array())
    throw Error(fmt::format("'{}' is no dump: it has no order of execution", left_path),
                "make dumps with `ingot debug dump`");
  DumpComparison c;
  size_t compared = 0;
  for (const auto& item : names) {
    const std::string name = item.get<std::string>();
    const SafetensorsEntry *l = left.find(name), *r = right.find(name);
    if (l == nullptr) fail("'{}': tensor '{}' is listed but missing", left_path, name);
    if (r == nullptr || r->str() != l->str()) {
      c.first = name;
      c.text = fmt::format("{}: {} on the left, {} on the right\n", name, l->str(),
                           r == nullptr ? "missing" : r->str());
      return c;
    }
    ++compared;
    const auto lb = left.data(*l), rb = right.data(*r);
    if (lb.size() == rb.size() && std::memcmp(lb.data(), rb.data(), lb.size()) == 0) continue;
    const std::vector<double> a = values(left, *l), b = values(right, *r);
    double worst = 0, scale = 1e-30;
    size_t where = 0, different = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      scale = std::max(scale, std::abs(a[i]));
      different += a[i] != b[i];
      if (!(std::abs(a[i] - b[i]) <= worst)) worst = std::abs(a[i] - b[i]), where = i;
    }
    if (tolerance > 0 && worst / scale <= tolerance) continue;
    c.first = name;
    c.text = fmt::format(
        "first difference: {} {}\n  {} of {} elements differ; largest at {}: {} and {} (relative {:.3g})\n",
        name, l->str(), different, a.size(), where, a.empty() ? 0 : a[where], a.empty() ? 0 : b[where],
        worst / scale);
    return c;
  }
  c.equal = true;
  c.text = fmt::format("{} tensors are equal{}\n", compared,
                       tolerance > 0 ? fmt::format(" within {}", tolerance) : " bit for bit");
  return c;
}

}  // namespace ingot
