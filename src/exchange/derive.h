// Models made from models without training: the average of several, a mixture of experts from a dense one. The result is
// written like an import, a folder with one checkpoint and its tokenizer, and taken wherever one is: generate, export,
// finetune, run.start_from. docs/exchange.md, docs/moe.md.
#pragma once
#include <string>
#include <vector>

#include "base/file_system.h"
#include "models/upcycle.h"

namespace ingot {

/// The last `count` complete checkpoints of a run folder (or folder of checkpoints), oldest first; Error where there are
/// fewer.
std::vector<std::string> last_checkpoints(FileSystem& fs, const std::string& run, int64_t count);

/// Weights of an exponential moving average over n models in order: a_1 = w_1, a_i = decay a_{i-1} + (1 - decay) w_i.
/// 0 <= decay < 1.
std::vector<double> moving_average_weights(size_t n, double decay);

/// The weighted mean of the models' tensors (weights are divided by their sum; empty: equal), summed in double, stored in
/// f32, in the new folder `out`. Tokenizer and small files are the last model's. Returns the checkpoint's path. Error for
/// fewer than two models, weights that are not positive, different architectures or tokenizers, adapters, a value that is
/// not finite, where `out` holds a model already. Memory: one f32 copy of the weights.
std::string average_models(FileSystem& fs, const std::vector<std::string>& models,
                           std::vector<double> weights, const std::string& out);

/// models/upcycle.h from one folder to another. Memory: both models in f32.
std::string upcycle_model(FileSystem& fs, const std::string& dense, const UpcycleOptions& options,
                          uint64_t seed, const std::string& out);

}  // namespace ingot
