// `ingot finetune`: fine-tune a model on a text or .jsonl file, in one command.
#include "train/finetune.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/checks.h"
#include "apps/commands.h"
#include "apps/model_argument.h"
#include "apps/run.h"
#include "base/invocation.h"
#include "base/log.h"
#include "base/progress.h"
#include "exchange/import.h"
#include "tape/op.h"

namespace ingot {
namespace {

struct FinetuneArguments {
  std::string model, kernels = "strict", loss = "dpo";
  FinetuneOptions finetune;
};

std::string base_name(const std::string& path) {
  const std::string trimmed = path.substr(0, path.find_last_not_of('/') + 1);
  return trimmed.substr(trimmed.find_last_of('/') + 1);
}

/// Imports a Hugging Face folder into the run's folder; other models are returned as they are.
std::string our_model(FileSystem& fs, const std::string& model, const std::string& run_folder) {
  if (!fs.exists(model + "/config.json") || fs.exists(model + "/checkpoints")) return model;
  const std::string imported = run_folder + "/import";
  if (fs.exists(imported + "/checkpoints")) return imported;
  const ImportReport r = import_huggingface(fs, model, imported);
  for (const std::string& s : r.suspicions) log::warn("{}", s);
  std::cout << fmt::format("imported {}: {} parameters in {} tensors\n", r.layout.family,
                           group_digits(r.parameters), r.tensors);
  return imported;
}

int finetune(FinetuneArguments& o, const std::vector<std::string>& overrides) {
  FileSystem& fs = real_file_system();
  set_kernel_policy(enum_from<KernelPolicy>(o.kernels, "kernel policy"));
  o.finetune.preference.loss = enum_from<PreferenceLoss>(o.loss, "loss");
  std::string& folder = o.finetune.run_folder;
  if (folder.empty()) folder = "runs/finetune-" + base_name(o.model);
  const std::string path = folder + "/recipe.toml";
  if (fs.exists(folder + "/" + run_files::kRecord))
    throw Error(fmt::format("'{}' already holds a run", folder),
                fmt::format("`ingot run {}` resumes it; or choose another --run", path));
  const StoredModel model = open_stored_model(fs, our_model(fs, o.model, folder));
  fs.create_folders(folder);
  write_file_atomically(fs, path, print_config(finetune_recipe(fs, model, o.finetune)));
  const Recipe recipe = load_recipe(path, overrides);
  write_file_atomically(fs, path, print_config(recipe));
  std::cout << as_typed("recipe: " + path + "   (`ingot run " + path +
                        "` resumes it, also with changed fields)\n")
            << std::flush;
  return run_recipe(recipe, StartMode::resume_or_start);
}

}  // namespace

void add_finetune_command(CLI::App& app, int& code) {
  auto o = std::make_shared<FinetuneArguments>();
  FinetuneOptions& f = o->finetune;
  CLI::App* c = app.add_subcommand("finetune", "fine-tune a model on your data");
  c->footer(
      "It writes a recipe and runs it. Any field of the recipe can be set too.\n"
      "Examples:\n"
      "  ingot finetune runs/first data.jsonl --run runs/tuned --epochs 2 --run.seed=7");
  c->add_option("model", o->model, kModelHelp)->required();
  c->add_option("data", f.data, "text or .jsonl file, folder, or pattern")->required();
  c->add_option("--run", f.run_folder, "run folder; default: runs/finetune-MODEL");
  c->add_option("--field", f.field,
                "field of a .jsonl row in the loss; default: completion beside prompt, else text");
  c->add_option("--prompt-field", f.prompt_field,
                "field of a .jsonl row that comes before it and is masked from the loss");
  c->add_option("--chat-template", f.chat_template,
                "of rows with messages: a folder or .jinja file, or chatml-think; default: the model's");
  c->add_flag("--trust-text", f.trust_text,
              "special tokens that messages spell become tokens, as in transformers; default: plain text");
  c->add_flag("--drop-too-long", f.drop_too_long,
              "skip rows that are longer than a sequence (default: an error)");
  c->add_option("--epochs", f.epochs, "passes over the data")
      ->check(in(positive(1e6)))
      ->capture_default_str();
  c->add_option("--lr", f.lr,
                "peak learning rate; it decays linearly to 0; default: 2e-5, of preferences 2e-6")
      ->check(in(positive(1e6)));
  c->add_option("--loss", o->loss,
                "of rows with preferences: dpo, ipo, apo_zero, apo_down, kto, orpo or simpo")
      ->capture_default_str();
  c->add_option("--beta", f.preference.beta, "of rows with preferences: how hard the model is held to itself")
      ->check(in(positive(1e6)))
      ->capture_default_str();
  c->add_option("--batch", f.batch, "sequences per step")
      ->check(in(between(1, bounds::kBatch)))
      ->capture_default_str();
  c->add_option("--sequence", f.sequence, "tokens per sequence; 0: the model's context, at most 1024")
      ->check(in(up_to(bounds::kSequence)))
      ->capture_default_str();
  c->add_option("--validation", f.validation_fraction,
                "fraction of documents held out for validation, if there are 200 or more")
      ->check(in(below_one()))
      ->capture_default_str();
  c->add_option("--freeze", f.freeze, "name pattern of frozen parameters, e.g. 'embed.*'; may be repeated");
  c->add_option("--lora", f.lora.rank, "train low-rank adapters of this rank beside the frozen weights")
      ->check(in(between(1, 0x1p16)));
  c->add_option("--lora-alpha", f.lora.alpha, "scale of the adapters is alpha / rank; default: the rank")
      ->check(in(positive(1e6)));
  c->add_option("--lora-targets", f.lora.targets,
                "name pattern of matrices with adapters; may be repeated; default: all supported");
  c->add_flag(
      "--special", f.parse_special,
      "special tokens that the text spells, such as <|im_start|>, become tokens; default: plain text");
  c->add_option("--tokenizer", f.tokenizer, "tokenizer folder or file; default: the model's");
  c->add_option("--kernels", o->kernels, "strict, or any: allow slow reference kernels")
      ->capture_default_str();
  c->allow_extras();
  c->callback([c, o, &code] { code = finetune(*o, c->remaining()); });
}

}  // namespace ingot
