// See export.h: writes a folder in Hugging Face's layout.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_depth.h"
#include "base/progress.h"
#include "checkpoint/model_state.h"
#include "exchange/export.h"
#include "exchange/huggingface_folder.h"
#include "exchange/merge.h"
#include "exchange/statistics.h"

namespace ingot {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string stored_name(const Decoder& d, const ExternalTensor& e) {
  return e.parameter >= 0 ? d.table()[e.parameter].name : Model::router_bias_name(e.layer);
}

/// One weight file: its tensors in order, and its header.
struct WeightFile {
  std::string name;
  std::vector<const ExternalTensor*> tensors;
  std::vector<SafetensorsItem> items;
  int64_t bytes = 0;
};

/// Divides the tensors among files of at most `limit` bytes, or of one tensor.
std::vector<WeightFile> divide(const std::vector<ExternalTensor>& externals, const std::vector<DType>& types,
                               int64_t limit) {
  std::vector<WeightFile> files(1);
  for (size_t i = 0; i < externals.size(); ++i) {
    const ExternalTensor& e = externals[i];
    const int64_t bytes = e.shape.numel() * size_of(types[i]);
    if (!files.back().tensors.empty() && files.back().bytes + bytes > limit) files.emplace_back();
    WeightFile& f = files.back();
    f.tensors.push_back(&e);
    f.items.push_back({e.name, types[i], e.shape, nullptr});
    f.bytes += bytes;
  }
  for (size_t i = 0; i < files.size(); ++i)
    files[i].name = files.size() == 1 ? "model.safetensors"
                                      : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
  return files;
}

void write_weights(FileSystem& fs, const std::string& folder, const CheckpointReader& reader,
                   const Decoder& decoder, const WeightFile& f, StatisticsTable& statistics,
                   Progress& progress, int64_t& done) {
  const SafetensorsLayout layout = layout_safetensors(f.items, {{"format", "pt"}});
  const auto file = fs.create(folder + "/" + f.name);
  file->append(layout.header.data(), layout.header.size());
  for (const size_t i : layout.order) {
    const ExternalTensor& e = *f.tensors[i];
    const std::vector<std::byte> data = read_external(reader, decoder, e, f.items[i].dtype);
    const TensorStatistics s = measure(data, safetensors_name(f.items[i].dtype));
    if (s.first_bad >= 0)
      throw Error(fmt::format("'{}': weight '{}' holds a value that is not finite (element {} of '{}')",
                              reader.path(), stored_name(decoder, e), s.first_bad, e.name),
                  "this checkpoint cannot be used; go back to an older one");
    statistics.add(e.name, s);
    file->append(data.data(), data.size());
    progress.update(done += static_cast<int64_t>(data.size()));
  }
  file->sync();
  file->close();
}

std::string index_of(const std::vector<WeightFile>& files, int64_t bytes) {
  OrderedJson map = OrderedJson::object();
  for (const WeightFile& f : files)
    for (const ExternalTensor* e : f.tensors) map[e->name] = f.name;
  return OrderedJson{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}}.dump(2) + "\n";
}

/// The model's own generation_config.json, completed by the ids that stop generation.
std::string generation_config(FileSystem& fs, const StoredModel& m, const TokenRoles& roles,
                              const std::string& config) {
  const std::string own = m.small_files + "/generation_config.json";
  const std::string text = !m.small_files.empty() && fs.exists(own) ? fs.read(own) : "{}";
  require_shallow_json(text, own);
  OrderedJson j = OrderedJson::parse(text, nullptr, false);
  if (!j.is_object()) j = OrderedJson::object();
  const OrderedJson c = OrderedJson::parse(config);
  for (const auto& [name, id] : {std::pair<const char*, std::optional<int32_t>>{"bos_token_id", roles.bos},
                                 {"eos_token_id", roles.eos},
                                 {"pad_token_id", roles.pad}}) {
    if (j.contains(name) && !j[name].is_null()) continue;
    if (c.contains(name) && !c[name].is_null())
      j[name] = c[name];
    else if (id)
      j[name] = *id;
  }
  return j.dump(2) + "\n";
}

HuggingfaceLayout layout_of(FileSystem& fs, const StoredModel& m) {
  if (!m.layout.family.empty()) return m.layout;
  HuggingfaceLayout layout = huggingface_layout(m.config);
  if (m.small_files.empty() || !fs.exists(m.small_files + "/config.json")) return layout;
  const OrderedJson j = OrderedJson::parse(fs.read(m.small_files + "/config.json"), nullptr, false);
  if (!j.is_object() || !j.contains("model_type") || !j["model_type"].is_string()) return layout;
  const std::string family = j["model_type"];  // an imported model keeps its family
  const auto& known = huggingface_families();
  if (std::find(known.begin(), known.end(), family) != known.end()) layout.family = family;
  return layout;
}

/// Copies the tokenizer's files and returns the roles of its tokens.
TokenRoles write_tokenizer(FileSystem& fs, const StoredModel& m, const std::string& given,
                           const std::string& to, ExportReport& report) {
  const bool own_files = given.empty() && !m.small_files.empty();
  if (own_files) {
    copy_small_files(fs, m.small_files, to);
    for (const char* written_here : {"/config.json", "/generation_config.json"})
      fs.remove_all(to + written_here);
  }
  if (stored_tokenizer_hash(m.reader).empty() && given.empty()) {
    report.notes.push_back(
        "the model came without a tokenizer that this program reads: its files, if any, go along unchecked");
    return {};
  }
  const Tokenizer t = load_tokenizer(m, given);
  if (!own_files) t.save(to);
  return t.roles();
}

/// The type that most bytes have.
DType main_type(const std::vector<ExternalTensor>& externals, const std::vector<DType>& types) {
  std::map<DType, int64_t> bytes;
  for (size_t i = 0; i < types.size(); ++i) bytes[types[i]] += externals[i].shape.numel() * size_of(types[i]);
  return std::max_element(bytes.begin(), bytes.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

}  // namespace

std::vector<std::byte> read_external(const CheckpointReader& reader, const Decoder& decoder,
                                     const ExternalTensor& e, DType as) {
  const std::string name = stored_name(decoder, e);
  const auto stored = reader.tensors().find(name);
  if (stored == reader.tensors().end()) fail("'{}' holds no tensor '{}'", reader.path(), name);
  const Shape& shape = stored->second.meta.shape;
  std::vector<std::byte> out(static_cast<size_t>(e.shape.numel() * size_of(as)));
  if (out.empty()) return out;
  int64_t last = e.offset;
  for (int d = 0; d < e.shape.rank(); ++d) last += (e.shape[d] - 1) * e.stride[static_cast<size_t>(d)];
  const int64_t row = shape.numel() / shape[0], first_row = e.offset / row, rows = last / row + 1 - first_row;
  Region region = Region::whole(shape);
  Shape offset{first_row}, extent{rows};
  for (int d = 1; d < shape.rank(); ++d) offset.push_back(0), extent.push_back(shape[d]);
  region = {offset, extent};
  std::vector<std::byte> memory(static_cast<size_t>(rows * row * size_of(as)));
  reader.read(name, region, as, memory.data());
  if (e.parameter >= 0 && decoder.table()[e.parameter].adapter.a >= 0)
    merge_adapter(reader, decoder.table(), e.parameter, first_row, Tensor(memory.data(), {rows, row}, as));
  gather_external(e, out.data(), memory.data(), first_row * row, size_of(as));
  return out;
}

DType stored_type(const CheckpointReader& reader, const Decoder& decoder, const ExternalTensor& e) {
  const auto stored = reader.tensors().find(stored_name(decoder, e));
  if (stored == reader.tensors().end())
    fail("'{}' holds no tensor '{}'", reader.path(), stored_name(decoder, e));
  return stored->second.meta.dtype;
}

ExportReport export_huggingface(FileSystem& fs, const StoredModel& m, const std::string& out,
                                const HuggingfaceExportOptions& options) {
  if (fs.exists(out))
    throw Error(fmt::format("'{}' exists already", out), "choose another folder, or delete this one");
  const Decoder decoder(m.config);
  const HuggingfaceLayout layout = layout_of(fs, m);
  const std::vector<ExternalTensor> externals = huggingface_tensors(decoder, layout);
  huggingface_config(without_adapters(m.config), layout, {});  // refuses before anything is written
  std::vector<DType> types;
  int64_t total = 0;
  for (const ExternalTensor& e : externals) {
    types.push_back(options.dtype.value_or(stored_type(m.reader, decoder, e)));
    total += e.shape.numel() * size_of(types.back());
  }
  ExportReport report;
  report.family = layout.family;
  const std::string partial = out + ".partial";
  fs.remove_all(partial);
  fs.create_folders(partial);
  Unfinished unfinished(fs, partial);
  const TokenRoles roles = write_tokenizer(fs, m, options.tokenizer, partial, report);
  HuggingfaceNotes notes;
  notes.dtype = main_type(externals, types);
  notes.bos = roles.bos.value_or(-1);
  notes.eos = roles.eos.value_or(-1);
  notes.pad = roles.pad.value_or(-1);
  if (!m.small_files.empty() && fs.exists(m.small_files + "/config.json"))
    notes.original = fs.read(m.small_files + "/config.json");
  const std::string config = huggingface_config(without_adapters(m.config), layout, notes);
  write_file_atomically(fs, partial + "/config.json", config);
  write_file_atomically(fs, partial + "/generation_config.json", generation_config(fs, m, roles, config));
  const std::vector<WeightFile> files = divide(externals, types, options.max_shard_bytes);
  StatisticsTable statistics;
  Progress progress("writing weights", total, Progress::Unit::bytes);
  int64_t done = 0;
  for (const WeightFile& f : files) {
    write_weights(fs, partial, m.reader, decoder, f, statistics, progress, done);
    report.files.push_back(f.name);
  }
  progress.finish();
  if (files.size() > 1)
    write_file_atomically(fs, partial + "/model.safetensors.index.json", index_of(files, total));
  fs.sync_folder(partial);
  fs.rename(partial, out);
  unfinished.keep();
  report.tensors = externals.size();
  report.bytes = total;
  report.statistics = statistics.text();
  for (const std::string& line : statistics.suspicions()) report.notes.push_back(line);
  return report;
}

}  // namespace ingot
