// See derived_folder.h.
#include "exchange/derived_folder.h"

#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "checkpoint/model_state.h"
#include "exchange/huggingface_folder.h"
#include "exchange/import.h"
#include "ops/registry.h"

namespace ingot {

void require_new_folder(FileSystem& fs, const std::string& out) {
  if (fs.exists(out) && !fs.list(out).empty())
    throw Error(fmt::format("'{}' exists and is not empty", out),
                "choose another folder, or delete this one");
}

void copy_small_files_of(FileSystem& fs, const StoredModel& from, bool config, const std::string& out) {
  const std::string to = out + "/" + kSmallFiles;
  if (!from.small_files.empty())
    copy_small_files(fs, from.small_files, to);
  else if (!stored_tokenizer_hash(from.reader).empty())
    load_tokenizer(from).save(to, fs);
  if (!config) fs.remove_all(to + "/config.json");
}

std::string write_derived_model(FileSystem& fs, const StoredModel& from, const ModelConfig& config,
                                const HuggingfaceLayout& layout, std::vector<Piece> pieces,
                                nlohmann::json origin, const std::string& out) {
  SaveRequest request;
  request.pieces = std::move(pieces);
  request.protection = origin.at("made_by");
  request.blobs["model"] = config_blob(print_config(config));
  request.blobs["trainer"] = nlohmann::json{
      {"step", 0},
      {"stage", 0},
      {"tokens", 0},
      {"tokenizer", stored_tokenizer_hash(from.reader)},
      {"kernels",
       kernel_set_fingerprint()}}.dump();
  origin.update({{"family", layout.family},
                 {"dtype", name_of(from.precision.compute)},
                 {"gpt2_prefix", layout.gpt2_prefix},
                 {"zaya_sublayers", layout.zaya_sublayers}});
  request.blobs[kImportBlob] = origin.dump();
  CheckpointWriter writer(fs, out + "/checkpoints",
                          {.asynchronous = false, .code_version = build_info().version});
  writer.save(request);
  return writer.wait().value_or(SaveReport{}).path;
}

}  // namespace ingot
