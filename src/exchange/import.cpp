// See import.h.
#include "exchange/import.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/memory_files.h"
#include "base/progress.h"
#include "checkpoint/layout.h"
#include "checkpoint/model_state.h"
#include "checkpoint/region.h"
#include "exchange/derived_folder.h"
#include "exchange/half.h"
#include "exchange/huggingface_folder.h"
#include "exchange/statistics.h"
#include "tensor/buffer.h"
#include "tokenizer/tokenizer.h"

namespace ingot {
namespace {

using Found = HuggingfaceFolder::Found;

bool is_number_type(const std::string& dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16" || dtype == "F64";
}
DType stored_type(const std::string& dtype) {
  return dtype == "BF16" ? DType::bf16 : dtype == "F64" ? DType::f64 : DType::f32;  // F16 is exact in f32
}

/// Whether a tensor is a constant or a copy that published files hold besides the parameters. It is checked,
/// not stored.
bool is_derived(const HuggingfaceFolder& folder, const ModelConfig& m, const std::string& name,
                const Found& found) {
  if (name.ends_with(".rotary_emb.inv_freq")) return true;  // follows from the config
  if (m.position == PositionKind::learned &&
      (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")))
    return true;  // gpt2: the causal mask
  if (!m.tied || name != "lm_head.weight") return false;
  for (const char* embedding : {"model.embed_tokens.weight", "transformer.wte.weight", "wte.weight"}) {
    const auto it = folder.tensors().find(embedding);
    if (it == folder.tensors().end()) continue;
    const auto a = found.data(), b = it->second.data();
    if (found.entry->str() != it->second.entry->str() || std::memcmp(a.data(), b.data(), a.size()) != 0)
      throw Error(fmt::format("'{}': '{}' differs from '{}', but the config ties them", found.file->path(),
                              name, embedding),
                  "set tie_word_embeddings to false in config.json if the head is a matrix of its own");
    return true;
  }
  return false;
}

/// Checks that every tensor is there exactly once and has the shape that the config gives it. Returns the
/// names of constants and copies.
std::vector<std::string> require_exact(const HuggingfaceFolder& folder, const ModelConfig& m,
                                       const std::vector<ExternalTensor>& expected) {
  std::map<std::string, const ExternalTensor*> wanted;
  for (const ExternalTensor& e : expected) wanted[e.name] = &e;
  std::vector<std::string> missing, unexpected, misshapen, derived, candidates;
  for (const auto& [name, found] : folder.tensors()) {
    const auto it = wanted.find(name);
    if (it == wanted.end()) {
      if (is_derived(folder, m, name, found))
        derived.push_back(name);
      else if (candidates.push_back(name); true)
        unexpected.push_back(fmt::format("'{}' {}", name, found.entry->str()));
      continue;
    }
    Shape shape;
    const bool small = found.entry->shape.size() <= Shape::kMaxRank;
    if (small)
      for (const int64_t extent : found.entry->shape) shape.push_back(extent);
    if (!small || !(shape == it->second->shape))
      misshapen.push_back(
          fmt::format("'{}': expected {}, found {}", name, it->second->shape.str(), found.entry->str()));
    else if (!is_number_type(found.entry->dtype))
      misshapen.push_back(
          fmt::format("'{}': expected F32, BF16, F16 or F64, found {}", name, found.entry->str()));
  }
  candidates.resize(std::min<size_t>(candidates.size(), 2000));
  for (const ExternalTensor& e : expected) {
    if (folder.tensors().contains(e.name)) continue;
    const std::string near = missing.size() < kListedFaults ? nearest_name(e.name, candidates) : "";
    missing.push_back(fmt::format("'{}' {}{}", e.name, e.shape.str(),
                                  near.empty() ? "" : fmt::format(" (there is '{}')", near)));
  }
  std::string message = fmt::format("the tensors of '{}' are not those of its config.json", folder.path());
  append_list(message, "missing", missing);
  append_list(message, "not expected", unexpected);
  append_list(message, "of another shape or type", misshapen);
  if (missing.empty() && unexpected.empty() && misshapen.empty()) return derived;
  throw Error(message,
              "config.json and weights belong to different models, or the family has variants that are not "
              "supported");
}

/// A parameter or buffer that is assembled from external tensors.
struct Assembly {
  std::string name;
  TensorKind kind = TensorKind::weight;
  Shape shape;
  DType dtype = DType::f32;
  Buffer memory;
  std::vector<const ExternalTensor*> parts;
};

/// The bytes of an external tensor in the type of its parameter.
std::vector<std::byte> converted(const Found& f, DType to) {
  const auto data = f.data();
  if (f.entry->dtype != "F16") {
    const DType from = *dtype_of_safetensors(f.entry->dtype);
    const auto count = static_cast<int64_t>(data.size()) / size_of(from);
    std::vector<std::byte> out(static_cast<size_t>(count * size_of(to)));
    convert_elements(out.data(), to, data.data(), from, count);
    return out;
  }
  std::vector<float> values(data.size() / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half;
    std::memcpy(&half, data.data() + 2 * i, 2);
    values[i] = from_half(half);
  }
  std::vector<std::byte> out(values.size() * static_cast<size_t>(size_of(to)));
  convert_elements(out.data(), to, reinterpret_cast<const std::byte*>(values.data()), DType::f32,
                   static_cast<int64_t>(values.size()));
  return out;
}

class Importer {
 public:
  Importer(const HuggingfaceFolder& folder, const Decoder& decoder,
           const std::vector<ExternalTensor>& externals)
      : folder_(folder) {
    for (int i = 0; i < decoder.table().size(); ++i)
      assemblies_.push_back(
          {decoder.table()[i].name, TensorKind::weight, decoder.table()[i].shape, DType::f32, {}, {}});
    for (const ExternalTensor& e : externals) {
      if (e.parameter >= 0)
        assemblies_[static_cast<size_t>(e.parameter)].parts.push_back(&e);
      else
        assemblies_.push_back(
            {Model::router_bias_name(e.layer), TensorKind::buffer, e.shape, DType::f32, {}, {&e}});
    }
  }
  /// Copies all tensors, adds up their statistics, and throws Error for a value that is not finite.
  void fill(StatisticsTable& statistics) {
    int64_t total = 0, done = 0;
    for (Assembly& a : assemblies_) {
      a.dtype = type_of(a);
      total += a.shape.numel() * size_of(a.dtype);
    }
    Progress progress("reading weights", total, Progress::Unit::bytes);
    for (Assembly& a : assemblies_) {
      a.memory = Buffer(a.shape.numel() * size_of(a.dtype));
      for (const ExternalTensor* e : a.parts) {
        const Found& f = folder_.tensors().at(e->name);
        const TensorStatistics s = measure(f.data(), f.entry->dtype);
        if (s.first_bad >= 0)
          throw Error(
              fmt::format("'{}': tensor '{}' holds a value that is not finite, the first at element {}",
                          f.file->path(), e->name, s.first_bad),
              "these weights are damaged or diverged; take another checkpoint of the model");
        statistics.add(e->name, s);
        const bool same = f.entry->dtype == safetensors_name(a.dtype);
        const std::vector<std::byte> other = same ? std::vector<std::byte>() : converted(f, a.dtype);
        scatter_external(*e, same ? f.data().data() : other.data(), a.memory.data(), 0, size_of(a.dtype));
        f.file->done_with(*f.entry);
      }
      progress.update(done += a.memory.bytes());
    }
    progress.finish();
  }
  std::vector<Piece> pieces() const {
    std::vector<Piece> pieces;
    for (const Assembly& a : assemblies_)
      pieces.push_back(Piece::whole(a.name, a.kind, Tensor(a.memory.data(), a.shape, a.dtype)));
    return pieces;
  }
  /// The type that most bytes have, in which the model runs.
  DType main_type() const {
    std::map<DType, int64_t> bytes;
    for (const Assembly& a : assemblies_) bytes[a.dtype] += a.shape.numel() * size_of(a.dtype);
    DType best = DType::f32;
    for (const auto& [dtype, n] : bytes)
      if (n > bytes[best]) best = dtype;
    return best;
  }
  int64_t bytes() const {
    int64_t n = 0;
    for (const Assembly& a : assemblies_) n += a.memory.bytes();
    return n;
  }

 private:
  /// The type of the parts; f32 (or f64) if they differ.
  DType type_of(const Assembly& a) const {
    DType all = stored_type(folder_.tensors().at(a.parts.front()->name).entry->dtype);
    for (const ExternalTensor* e : a.parts) {
      const DType t = stored_type(folder_.tensors().at(e->name).entry->dtype);
      if (t != all) all = t == DType::f64 || all == DType::f64 ? DType::f64 : DType::f32;
    }
    return all;
  }
  const HuggingfaceFolder& folder_;
  std::vector<Assembly> assemblies_;
};

/// The hash of the model's tokenizer, "" without one. Throws Error if it cannot be read or has too many
/// tokens.
std::string tokenizer_hash(FileSystem& fs, const std::string& from, const ModelConfig& m) {
  if (!Tokenizer::holds_tokenizer(fs, from)) {
    log::warn(
        "'{}' has no tokenizer.json and no tokenizer.model: the model can be trained on tokens and exported, "
        "but not be given text",
        from);
    return "";
  }
  try {
    const Tokenizer t = Tokenizer::load(from);
    if (t.vocab_size() > m.vocab)
      fail("the tokenizer of '{}' has {} tokens, the model {}", from, t.vocab_size(), m.vocab);
    return t.content_hash();
  } catch (const Error& e) {
    throw Error(e.what(),
                fmt::format("`ingot import {} OUT --without-tokenizer` imports the weights alone", from));
  }
}

/// Reads `from`, and writes the checkpoint to `out` of another file system.
ImportReport import_weights(FileSystem& fs, const std::string& from, FileSystem& to, const std::string& out,
                            const ImportOptions& options) {
  const HuggingfaceFolder folder(fs, from);
  ImportReport report;
  report.model = folder.model();
  report.layout = folder.layout();
  const Decoder decoder(report.model);
  const std::vector<ExternalTensor> externals = huggingface_tensors(decoder, report.layout);
  report.notes = require_exact(folder, report.model, externals);
  const std::string tokenizer = options.tokenizer ? tokenizer_hash(fs, from, report.model) : "";
  Importer importer(folder, decoder, externals);
  StatisticsTable statistics;
  importer.fill(statistics);
  report.statistics = statistics.text();
  report.suspicions = statistics.suspicions();
  if (&fs == &to) copy_small_files(fs, from, out + "/" + kSmallFiles);
  report.checkpoint = write_new_model(to,
                                      {.config = report.model,
                                       .layout = report.layout,
                                       .dtype = importer.main_type(),
                                       .tokenizer = tokenizer,
                                       .pieces = importer.pieces(),
                                       .protection = "imported",
                                       .origin = {{"from", from}}},
                                      out);
  report.parameters = count_parameters(decoder).total;
  report.bytes = importer.bytes();
  report.tensors = externals.size();
  report.files = folder.files();
  return report;
}

}  // namespace

ImportReport import_huggingface(FileSystem& fs, const std::string& from, const std::string& out,
                                const ImportOptions& options) {
  const std::string checkpoints = out + "/checkpoints";
  if (fs.exists(checkpoints))
    for (const std::string& name : fs.list(checkpoints))
      if (checkpoint_layout::is_checkpoint_name(name))
        throw Error(fmt::format("'{}' holds checkpoints already", checkpoints),
                    "choose another folder, or delete this one");
  return import_weights(fs, from, fs, out, options);
}

CheckpointReader import_in_memory(FileSystem& fs, const std::string& from) {
  const std::unique_ptr<FileSystem> memory = memory_file_system();
  const ImportReport report = import_weights(fs, from, *memory, "import", {});
  for (const std::string& line : report.suspicions) log::warn("{}", line);
  CheckpointReader reader = CheckpointReader::open(*memory, report.checkpoint, Verify::structure);
  reader.set_name(from);
  return reader;
}

}  // namespace ingot
