// `ingot import` and `ingot export`: read Hugging Face models; write Hugging Face, GGUF or PEFT files.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/model_argument.h"
#include "apps/text_io.h"
#include "base/log.h"
#include "base/progress.h"
#include "exchange/export.h"
#include "exchange/import.h"
#include "exchange/peft.h"
#include "report/table.h"

namespace ingot {
namespace {

struct ExchangeArguments {
  std::string from, to, format, dtype, tokenizer, name, base;
  bool without_tokenizer = false, statistics = false;
  int64_t shard_mib = 5 << 10;
  JsonOption json;
};

using Json = nlohmann::ordered_json;

int import_model(const ExchangeArguments& o) {
  if (!o.base.empty()) {
    const std::string checkpoint = import_peft(real_file_system(), o.from, o.base, o.to);
    o.json.print(checkpoint + "\n" + next_command(o.to), json_text({{"checkpoint", checkpoint}}, 2));
    return 0;
  }
  const ImportReport r =
      import_huggingface(real_file_system(), o.from, o.to, {.tokenizer = !o.without_tokenizer});
  for (const std::string& name : r.notes)
    log::info("'{}' is a copy or a constant: checked and left out", name);
  for (const std::string& line : r.suspicions) log::warn("{}", line);
  std::string text = o.statistics ? r.statistics : "";
  text += fmt::format("{}: {} tensors of {}, {} parameters, {}\n{}\n", r.layout.family, r.tensors,
                      count_of(r.files, "file"), format_count(static_cast<double>(r.parameters)),
                      format_bytes(static_cast<double>(r.bytes)), r.checkpoint);
  if (!o.without_tokenizer && Tokenizer::holds_tokenizer(real_file_system(), o.to + "/huggingface"))
    text += next_command(o.to);
  Json j{{"checkpoint", r.checkpoint}, {"family", r.layout.family},  {"tensors", r.tensors},
         {"files", r.files},           {"parameters", r.parameters}, {"bytes", r.bytes},
         {"left_out", r.notes},        {"suspicions", r.suspicions}};
  o.json.print(text, json_text(j, 2));
  return 0;
}

GgufType gguf_type(const std::string& name) {
  if (name.empty() || name == "f16") return GgufType::f16;
  if (name == "f32") return GgufType::f32;
  if (name == "bf16") return GgufType::bf16;
  if (name == "q8_0") return GgufType::q8_0;
  throw Error(fmt::format("--dtype is '{}'", name), "a GGUF file takes f32, f16, bf16 or q8_0");
}

std::optional<DType> huggingface_type(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (name == "f32") return DType::f32;
  if (name == "bf16") return DType::bf16;
  throw Error(fmt::format("--dtype is '{}'", name),
              "Hugging Face format takes f32 or bf16; without the option the stored dtype is kept");
}

int export_model(const ExchangeArguments& o) {
  FileSystem& fs = real_file_system();
  const std::string format = o.format.empty() ? (o.to.ends_with(".gguf") ? "gguf" : "hf") : o.format;
  if (format != "hf" && format != "gguf" && format != "peft")
    throw UsageError(fmt::format("--format is '{}'", format), "expected hf, gguf or peft");
  if (format != "gguf" && o.to.ends_with(".gguf"))
    throw UsageError(fmt::format("'{}' names a GGUF file, but --format is {}", o.to, format),
                     "leave --format out, or name a folder");
  if (o.shard_mib < 1) throw Error("--max-shard-mib must be at least 1");
  const StoredModel m = open_stored_model(fs, o.from);
  const ExportReport r =
      format == "peft" ? export_peft(fs, m, o.to)
      : format == "hf"
          ? export_huggingface(fs, m, o.to,
                               {.dtype = huggingface_type(o.dtype),
                                .max_shard_bytes = o.shard_mib << 20,
                                .tokenizer = o.tokenizer})
          : export_gguf(fs, m, o.to, {.type = gguf_type(o.dtype), .tokenizer = o.tokenizer, .name = o.name});
  for (const std::string& note : r.notes) log::warn("{}", note);
  o.json.print((o.statistics ? r.statistics : "") +
                   fmt::format("{}: {}, {} tensors, {} from step {} of {}\n", o.to, r.family, r.tensors,
                               format_bytes(static_cast<double>(r.bytes)), m.reader.step(), m.reader.path()),
               json_text({{"out", o.to},
                          {"format", format},
                          {"family", r.family},
                          {"tensors", r.tensors},
                          {"bytes", r.bytes},
                          {"step", m.reader.step()},
                          {"from", m.reader.path()},
                          {"notes", r.notes}},
                         2));
  return 0;
}

}  // namespace

void add_exchange_commands(CLI::App& app, int& code) {
  auto i = std::make_shared<ExchangeArguments>();
  CLI::App* import_app = app.add_subcommand("import", "import a Hugging Face model");
  import_app->add_option("folder", i->from, "folder with config.json and safetensors")->required();
  import_app->add_option("out", i->to, "new folder for checkpoint and tokenizer")->required();
  import_app->add_option("--base", i->base,
                         "base model, if the folder holds PEFT adapters (adapter_config.json)");
  import_app->add_flag("--without-tokenizer", i->without_tokenizer,
                       "skip the tokenizer (for one that Ingot does not support)");
  import_app->add_flag("--statistics", i->statistics,
                       "print mean, standard deviation and largest magnitude of all tensors");
  add_json_option(*import_app, i->json);
  import_app->footer(
      "Examples:\n  ingot import hf imported   # hf: a folder with config.json and *.safetensors");
  import_app->callback([i, &code] { code = import_model(*i); });
  auto o = std::make_shared<ExchangeArguments>();
  CLI::App* export_app = app.add_subcommand("export", "export a model to Hugging Face format or GGUF");
  export_app->add_option("model", o->from, kModelHelp)->required();
  export_app->add_option("out", o->to, "new folder, or new .gguf file")->required();
  export_app->add_option(
      "--format", o->format,
      "hf (Hugging Face), gguf (llama.cpp) or peft (the adapters alone); default: gguf for a name that ends "
      "in .gguf, else hf");
  export_app->add_option("--dtype", o->dtype,
                         "hf: f32 or bf16, default as stored; gguf: f32, f16 (default), bf16 or q8_0");
  export_app->add_option("--tokenizer", o->tokenizer, "tokenizer folder or file; default: the model's");
  export_app->add_option("--max-shard-mib", o->shard_mib, "hf: maximum size of a weight file")
      ->check(in(between(1, 0x1p30)))
      ->capture_default_str();
  export_app->add_option("--name", o->name, "gguf: general.name; default: the folder's");
  export_app->add_flag("--statistics", o->statistics,
                       "print mean, standard deviation and largest magnitude of all tensors");
  add_json_option(*export_app, o->json);
  export_app->footer(
      "Examples:\n  ingot export runs/first exported --dtype=bf16   # a folder for transformers");
  export_app->callback([o, &code] { code = export_model(*o); });
}

}  // namespace ingot
