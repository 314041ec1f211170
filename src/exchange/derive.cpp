// See derive.h.
#include "exchange/derive.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/range.h"
#include "checkpoint/layout.h"
#include "checkpoint/model_state.h"
#include "exchange/derived_folder.h"
#include "tensor/buffer.h"

namespace ingot {
namespace {

using Json = nlohmann::json;

void require_same_model(const StoredModel& first, const StoredModel& other) {
  if (other.config.lora.rank > 0)
    throw Error(
        fmt::format("'{}' has adapters: the mean of A and of B is not the mean of B A", other.reader.path()),
        "merge them into the weights first: ingot export, then ingot import");
  std::string differences;
  for (const std::string& line : architecture_differences(first.config, other.config))
    differences += "\n  " + line;
  if (!differences.empty())
    throw Error(fmt::format("'{}' and '{}' are different models (field: the first's value, the second's):{}",
                            first.reader.path(), other.reader.path(), differences),
                "an average needs models of one architecture: checkpoints of one run, or runs that started "
                "from one model");
  const std::string left = stored_tokenizer_hash(first.reader), right = stored_tokenizer_hash(other.reader);
  if (left != right)
    throw Error(
        fmt::format("'{}' was trained with tokenizer {}, '{}' with {}", first.reader.path(),
                    left.empty() ? "(none)" : left, other.reader.path(), right.empty() ? "(none)" : right),
        "their embeddings mean different tokens; average models that share a tokenizer");
}

/// Computes the weighted mean of one tensor.
void average_tensor(const std::vector<StoredModel>& models, const std::vector<double>& weights,
                    const std::string& name, const Tensor& out) {
  const auto n = static_cast<size_t>(out.numel());
  std::vector<double> sum(n, 0.0), values(n);
  for (size_t m = 0; m < models.size(); ++m) {
    models[m].reader.read(name, Region::whole(out.shape()), DType::f64, values.data());
    for (size_t i = 0; i < n; ++i) sum[i] += weights[m] * values[i];
  }
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(sum[i]))
      fail("the average of '{}' is not finite at element {}: one of the models is damaged", name, i);
    out.as<float>()[i] = static_cast<float>(sum[i]);
  }
}

/// Divides weights by their sum.
void normalize(std::vector<double>& weights, size_t models) {
  if (weights.empty()) weights.assign(models, 1.0);
  if (weights.size() != models) fail("{} weights for {} models", weights.size(), models);
  double sum = 0;
  for (const double w : weights) {
    if (const std::string problem = positive(bounds::kWeight).problem(w); !problem.empty())
      throw Error("the weight of a model " + problem, "give smaller numbers, or leave that model out");
    sum += w;
  }
  for (double& w : weights) w /= sum;
}

}  // namespace

std::vector<std::string> last_checkpoints(FileSystem& fs, const std::string& run, int64_t count) {
  const std::string inner = run + "/checkpoints", folder = fs.exists(inner) ? inner : run;
  const auto found = checkpoint_layout::complete_checkpoints(fs, folder);
  if (count < 1 || static_cast<int64_t>(found.size()) < count)
    throw Error(fmt::format("'{}' holds {} complete checkpoints, expected at least {}", folder, found.size(),
                            std::max<int64_t>(count, 1)),
                "a run keeps checkpoint.keep_last of them; raise it before the run (0: all)");
  std::vector<std::string> paths;
  for (size_t i = static_cast<size_t>(count); i-- > 0;) paths.push_back(folder + "/" + found[i].name);
  return paths;
}

std::vector<double> moving_average_weights(size_t n, double decay) {
  if (!(decay >= 0 && decay < 1))
    fail("the decay of a moving average is {}, expected at least 0 and below 1", decay);
  std::vector<double> weights(n, 1 - decay);
  if (n > 0) weights[0] = 1;
  for (size_t i = 0; i < n; ++i)
    for (size_t later = i + 1; later < n; ++later) weights[i] *= decay;
  return weights;
}

std::string average_models(FileSystem& fs, const std::vector<std::string>& paths, std::vector<double> weights,
                           const std::string& out) {
  if (paths.size() < 2)
    throw Error("one model is its own average", "name at least two, or a run folder with --last N");
  normalize(weights, paths.size());
  require_new_folder(fs, out);
  std::vector<StoredModel> models;
  Json sources = Json::array();
  for (size_t i = 0; i < paths.size(); ++i) {
    models.push_back(open_stored_model(fs, paths[i]));
    require_same_model(models.front(), models.back());
    sources.push_back({{"path", models.back().reader.path()},
                       {"step", models.back().reader.step()},
                       {"weight", weights[i]}});
  }
  const StoredModel& last = models.back();
  std::vector<Buffer> memory;
  std::vector<Piece> pieces;
  for (const auto& [name, stored] : last.reader.tensors()) {
    if (stored.kind == TensorKind::optimizer) continue;
    memory.emplace_back(stored.meta.shape.numel() * size_of(DType::f32));
    const Tensor mean(memory.back().data(), stored.meta.shape, DType::f32);
    average_tensor(models, weights, name, mean);
    pieces.push_back(Piece::whole(name, stored.kind, mean));
  }
  copy_small_files_of(fs, last, true, out);
  return write_derived_model(fs, last, last.config, last.layout, std::move(pieces),
                             {{"made_by", "average"}, {"sources", sources}}, out);
}

std::string upcycle_model(FileSystem& fs, const std::string& path, const UpcycleOptions& options,
                          uint64_t seed, const std::string& out) {
  require_new_folder(fs, out);
  const StoredModel stored = open_stored_model(fs, path);
  const ModelConfig config = upcycled_config(stored.config, options);
  Model dense(stored.config, Precision::f32()), mixture(config, Precision::f32());
  load_model(stored.reader, dense);
  upcycle(dense.weights(), options, seed, mixture.weights());
  copy_small_files_of(fs, stored, false, out);
  return write_derived_model(fs, stored, config, {}, model_pieces(mixture),
                             {{"made_by", "upcycle"}, {"from", stored.reader.path()}, {"seed", seed}}, out);
}

}  // namespace ingot
