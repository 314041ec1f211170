// See resume_check.h.
#include "train/resume_check.h"

#include <cstdio>
#include <string_view>

#include "base/log.h"
#include "checkpoint/layout.h"
#include "checkpoint/model_state.h"
#include "exchange/import.h"
#include "ops/registry.h"
#include "train/phase_sampler.h"

namespace ingot {

namespace {

/// Whether a fixed key of a phase is free yet: all of later phases, and the number of steps of the present
/// one. Where ranks have come or gone (`refits`), batch sizes too: the sampler continues from the samples
/// consumed.
bool may_still_change(const std::string& path, size_t present_phase, bool refits) {
  size_t phase = 0;
  char key[32] = {};
  if (std::sscanf(path.c_str(), "phases.%zu.%31s", &phase, key) != 2) return false;
  const std::string_view k = key;
  const bool is_size = k == "batch" || (k.starts_with("batches.") && k.ends_with(".batch"));
  return phase > present_phase || (phase == present_phase && k == "steps") || (refits && is_size);
}

/// The recipe that a checkpoint was written with. A key that it does not know is as the program then
/// worked; a key without effect is as it is now.
Recipe saved_recipe(const CheckpointReader& reader, const Recipe& now) {
  const std::string toml = config_of_blob(reader, "recipe");
  Recipe then = recipe_from_toml(toml, reader.path() + ": recipe");
  MoeConfig& moe = then.model.moe;
  if (toml.find("router_precision") == std::string::npos)
    moe.router_precision = moe.experts > 0 && then.run.precision == PrecisionChoice::bf16
                               ? RouterPrecision::bf16
                               : now.model.moe.router_precision;
  if (moe.aux_coefficient == 0 && now.model.moe.aux_coefficient == 0) moe.aux_scope = now.model.moe.aux_scope;
  return then;
}

}  // namespace

void require_same_run(const CheckpointReader& reader, const Recipe& recipe, const std::string& tokenizer,
                      bool warns) {
  if (reader.manifest().blobs.contains(kImportBlob))
    throw Error(fmt::format("'{}' holds an imported model, not a run", recipe.run.folder),
                fmt::format("set run.start_from = \"{}\" and another run.folder, or use `ingot finetune`",
                            recipe.run.folder));
  const SavedRun then = SavedRun::of(reader);
  const std::string& kernels = then.kernels;
  if (kernels != kernel_set_fingerprint())
    throw Error(fmt::format("'{}' was written with kernel set {}, this program has {}: the run would not "
                            "continue bit for bit",
                            reader.path(), kernels, kernel_set_fingerprint()),
                "resume with the program that started the run, or start a new run from these weights");
  if (then.tokenizer != tokenizer)
    throw Error(fmt::format("'{}' was trained with tokenizer {}, the recipe's is {}", reader.path(),
                            then.tokenizer, tokenizer),
                "restore the data folder of the run, or start a new run");
  for (const ConfigDifference& d : diff_config(to_node(saved_recipe(reader, recipe)), to_node(recipe))) {
    if (d.fixed && !may_still_change(d.path, then.phase, recipe.parallel.batch_fit != BatchFit::refuse))
      throw Error(fmt::format("the run in '{}' has {} = {}, the recipe says {}", recipe.run.folder, d.path,
                              d.left, d.right),
                  "revert the change to resume, or choose another run.folder for a new run");
    if (d.path != "run.folder" && warns) log::warn("{} was {} and is now {}", d.path, d.left, d.right);
  }
}

void require_no_checkpoints(FileSystem& fs, const std::string& folder) {
  if (!fs.exists(folder)) return;
  for (const std::string& name : fs.list(folder))
    if (checkpoint_layout::is_checkpoint_name(name))
      throw Error(fmt::format("'{}' holds checkpoints, but none of them is complete and undamaged", folder),
                  "starting anew would overwrite this run: restore a checkpoint, choose another run.folder, "
                  "or delete the folder");
}

}  // namespace ingot
