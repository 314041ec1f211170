// See export.h: writes a GGUF file for llama.cpp.
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/progress.h"
#include "checkpoint/layout.h"
#include "exchange/export.h"
#include "exchange/gguf.h"
#include "exchange/gguf_model.h"
#include "exchange/gguf_tokenizer.h"
#include "exchange/statistics.h"

namespace ingot {
namespace {

std::string chat_template(FileSystem& fs, const StoredModel& m) {
  if (m.small_files.empty()) return "";
  if (fs.exists(m.small_files + "/chat_template.jinja"))
    return fs.read(m.small_files + "/chat_template.jinja");
  if (!fs.exists(m.small_files + "/tokenizer_config.json")) return "";
  const auto j = nlohmann::json::parse(fs.read(m.small_files + "/tokenizer_config.json"), nullptr, false);
  return j.is_object() && j.contains("chat_template") && j["chat_template"].is_string()
             ? j["chat_template"].get<std::string>()
             : "";
}

GgmlType type_of(const GgufTensor& item, GgufType wanted) {
  if (item.exact) return GgmlType::f32;
  if (wanted == GgufType::q8_0) return item.shape[-1] % 32 == 0 ? GgmlType::q8_0 : GgmlType::f16;
  return wanted == GgufType::f32 ? GgmlType::f32 : wanted == GgufType::f16 ? GgmlType::f16 : GgmlType::bf16;
}

uint32_t file_type(GgufType t) {
  return t == GgufType::f32 ? 0 : t == GgufType::f16 ? 1 : t == GgufType::q8_0 ? 7 : 32;
}

/// The bytes of one tensor in its type. Throws Error for a value that is not finite.
std::vector<std::byte> bytes_of(const StoredModel& m, const Decoder& decoder, const GgufTensor& item,
                                GgmlType type, StatisticsTable& table) {
  std::vector<float> values = item.values;
  for (const ExternalTensor& part : item.parts) {
    const std::vector<std::byte> raw = read_external(m.reader, decoder, part, DType::f32);
    const size_t before = values.size();
    values.resize(before + raw.size() / 4);
    std::memcpy(values.data() + before, raw.data(), raw.size());
  }
  if (item.offset != 0)
    for (float& v : values) v += item.offset;
  const TensorStatistics s = measure(std::as_bytes(std::span(values)), "F32");
  if (s.first_bad >= 0)
    throw Error(fmt::format("'{}': weight '{}' holds a value that is not finite", m.reader.path(), item.name),
                "this checkpoint cannot be used; go back to an older one");
  table.add(item.name, s);
  return to_ggml(type, values.data(), static_cast<int64_t>(values.size()), item.name);
}

}  // namespace

ExportReport export_gguf(FileSystem& fs, const StoredModel& m, const std::string& out,
                         const GgufExportOptions& options) {
  if (fs.exists(out))
    throw Error(fmt::format("'{}' exists already", out), "choose another file, or delete this one");
  ExportReport report;
  const GgufArchitecture& arch = gguf_architecture(m.config);
  report.family = arch.name;
  const Decoder decoder(m.config);
  GgufWriter w;
  w.add("general.architecture", report.family);
  w.add("general.type", std::string("model"));
  w.add("general.name",
        options.name.empty() ? m.folder.substr(m.folder.find_last_of('/') + 1) : options.name);
  w.add("general.file_type", file_type(options.type));
  if (options.type == GgufType::q8_0) w.add("general.quantization_version", uint32_t{2});
  add_gguf_model_keys(w, m.config, arch);
  if (m.tokenizer_folder.empty() && options.tokenizer.empty()) {
    w.add("tokenizer.ggml.model", std::string("no_vocab"));
    report.notes.push_back("the model came without a tokenizer: llama.cpp can run it on token ids only");
  } else {
    add_gguf_tokenizer_keys(w, load_tokenizer(m, options.tokenizer), m.config.vocab, chat_template(fs, m),
                            report.notes);
  }
  const std::vector<GgufTensor> items = gguf_tensors(decoder, arch);
  std::vector<GgmlType> types;
  for (const GgufTensor& item : items) {
    types.push_back(type_of(item, options.type));
    if (options.type == GgufType::q8_0 && types.back() == GgmlType::f16)
      report.notes.push_back(
          fmt::format("'{}' {} stays F16: its rows are no multiple of 32", item.name, item.shape.str()));
    w.add_tensor(item.name, item.shape, types.back());
    report.bytes += ggml_bytes(types.back(), item.shape);
  }
  StatisticsTable statistics;
  Progress progress("writing weights", report.bytes, Progress::Unit::bytes);
  checkpoint_layout::create_folders_durably(fs, checkpoint_layout::parent_of(out));
  w.write(fs, out, [&](size_t i) {
    std::vector<std::byte> bytes = bytes_of(m, decoder, items[i], types[i], statistics);
    progress.add(static_cast<int64_t>(bytes.size()));
    return bytes;
  });
  progress.finish();
  report.files = {out};
  report.tensors = items.size();
  report.statistics = statistics.text();
  return report;
}

}  // namespace ingot
