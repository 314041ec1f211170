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

std::string write_new_model(FileSystem& fs, NewModel model, const std::string& out) {
  SaveRequest request;
  request.pieces = std::move(model.pieces);
  request.protection = model.protection;
  request.blobs["model"] = config_blob(print_config(model.config));
  const nlohmann::json trainer{{"step", 0},
                               {"stage", 0},
                               {"tokens", 0},
                               {"tokenizer", model.tokenizer},
                               {"kernels", kernel_set_fingerprint(DType::f32, DeviceKind::cpu)}};
  request.blobs["trainer"] = trainer.dump();
  model.origin.update({{"family", model.layout.family},
                       {"dtype", name_of(model.dtype)},
                       {"gpt2_prefix", model.layout.gpt2_prefix},
                       {"zaya_sublayers", model.layout.zaya_sublayers}});
  request.blobs[kImportBlob] = model.origin.dump();
  CheckpointWriter writer(
      fs, out + "/checkpoints",
      {.max_file_bytes = model.max_file_bytes, .asynchronous = false, .code_version = build_info().version});
  writer.save(request);
  return writer.wait().value_or(SaveReport{}).path;
}

std::string write_derived_model(FileSystem& fs, const StoredModel& from, const ModelConfig& config,
                                const HuggingfaceLayout& layout, std::vector<Piece> pieces,
                                nlohmann::json origin, const std::string& out) {
  const std::string made_by = origin.at("made_by");
  if (from.document_start) origin["document_start"] = name_of(*from.document_start);
  return write_new_model(fs,
                         {.config = config,
                          .layout = layout,
                          .dtype = from.precision.compute,
                          .tokenizer = stored_tokenizer_hash(from.reader),
                          .pieces = std::move(pieces),
                          .protection = made_by,
                          .origin = std::move(origin)},
                         out);
}

}  // namespace ingot
