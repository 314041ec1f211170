// Loss curves, bit for bit: 20 steps of a tiny model of each family and option on a small text. A change of any kernel,
// initial value, data order or optimizer shows here first; where the change is meant, INGOT_WRITE_GOLDEN=1
// writes the fixture anew. Every instruction set gives the same curve: the test runs each that this machine
// has.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "device/cpu/isa.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test {
namespace {

/// The measured program: losses and gradient norms of a recipe, one line per step.
TEST(GoldenChild, DISABLED_Run) {
  const char* recipe = std::getenv("INGOT_TEST_RECIPE");
  if (recipe == nullptr) GTEST_SKIP() << "started by the tests of Golden";
  Trainer(real_file_system(), load_recipe(recipe, {}), StartMode::resume_or_start).run();
}

struct Case {
  const char* name;
  const char* preset;
  const char* options = "";  ///< further lines of [model], which override the ones that all cases have
  const char* stage = "";    ///< a second stage's lines; without it one stage of 20 steps
  const char* prompts = "\"the \"";
  const char* sections = "";  ///< further sections of the recipe
};

/// A case of the llama that differs in its optimizer alone.
constexpr Case optimizer(const char* name, const char* sections) { return {name, "llama-small", "", "", "\"the \"", sections}; }
/// A case of the llama whose second half of the steps is another stage.
constexpr Case second_stage(const char* name, const char* stage) { return {name, "llama-small", "", stage}; }

const Case kCases[] = {
    {"gpt2", "gpt-10m", "kv_heads = 4\n"},
    {"llama", "llama-small"},
    {"moe", "moe-small"},
    {"moe_softmax_last", "moe-small", "moe.score = \"softmax_last\"\nmoe.normalize = false\nmoe.scale = 1.5\n"},
    {"moe_sigmoid", "moe-small",
     "moe.score = \"sigmoid\"\nmoe.balance = \"sign\"\nmoe.aux_coefficient = 0.0\n"
     "moe.sequence_aux_coefficient = 1e-2\nmoe.shared_hidden = 8\n"},
    {"moe_groups", "moe-small", "moe.groups = 4\nmoe.groups_kept = 2\nmoe.z_coefficient = 1e-3\n"},
    {"moe_latent", "moe-small", "moe.latent = 12\n"},
    {"moe_capacity", "moe-small", "moe.capacity_factor = 0.75\n"},
    {"moe_position", "moe-small", "moe.capacity_factor = 0.75\nmoe.drop = \"position\"\nmoe.pad_to_capacity = true\n"},
    {"moe_sinkhorn", "moe-small", "moe.selection = \"sinkhorn\"\nmoe.normalize = false\nmoe.aux_coefficient = 0.0\n"},
    {"moe_expert_choice", "moe-small",
     "moe.selection = \"expert_choice\"\nmoe.capacity_factor = 1.0\nmoe.normalize = false\nmoe.aux_coefficient = 0.0\n", "", ""},
    {"geglu", "llama-small", "mlp = \"geglu\"\n"},
    {"zaya", "zaya-tiny"},
    {"window", "llama-small", "window = 7\nwindow_pattern = \"SF\"\nwindow_rope_theta = 100.0\n"},
    {"softcap", "llama-small", "logit_softcap = 2.0\nattention_scale = 0.5\n"},
    {"nope", "llama-small", "rope_pattern = \"RN\"\n"},
    {"half_truncated", "llama-small", "half_truncated_rope = true\nrope_theta = 1024.0\nqk_norm = true\n"},
    {"rope_scaling", "llama-small",
     "rope_scaling.kind = \"llama3\"\nrope_scaling.factor = 8.0\nrope_scaling.original_context = 24\n"},
    {"yarn", "llama-small",
     "rope_scaling.kind = \"yarn\"\nrope_scaling.factor = 4.0\nrope_scaling.original_context = 12\n"},
    {"mla", "llama-small",
     "kv_heads = 4\nhead_width = 0\nattention = \"mla\"\ninterleaved_rope = true\nmla.q_rank = 10\nmla.kv_rank = 12\n"
     "mla.nope_width = 6\nmla.rope_width = 4\nmla.value_width = 7\n"},
    {"mtp", "llama-small", "mtp.depths = 2\nmtp.coefficient = 0.3\n"},
    {"no_attention", "llama-small", "attention_pattern = \"AN\"\nnorm_weight = false\n"},
    {"record", "llama-small",
     "qk_norm = true\nnorm_weight = false\nembedding_norm = true\ninput_mix = true\nunet_skips = true\n"
     "value_embeddings = 1\nwindow = 16\nwindow_block = 8\nwindow_pattern = \"SH\"\nmlp = \"relu2\"\ntied = false\n"
     "head_multiple = 16\nhead_cap.kind = \"sigmoid\"\n",
     "window_growth = 12\n"},
    second_stage("stage_theta", "rope_theta = 1_000_000.0\n"),
    second_stage("schedule_continues", "continues = true\n"),
    second_stage("schedule_cosine", "schedule = \"cosine\"\nmin_lr_ratio = 0.1\n"),
    second_stage("schedule_linear", "schedule = \"linear\"\n"),
    second_stage("schedule_piecewise",
                 "schedule = \"piecewise\"\nsegments = [{ until = 0.5, to = 1.0 }, { until = 1.0, to = 0.2, shape = \"sqrt\" }]\n"),
    second_stage("z_loss", "z_coefficient = 1e-3\n"),
    second_stage("batches", "batch_rate = \"sqrt\"\n[[stages.batches]]\ntokens = 400\nbatch = 6\n[[stages.batches]]\nloss = 20.0\nbatch = 8\n"),
    optimizer("adamw", "[optimizer]\nmatrices = \"adamw\"\nclip = 0.1\n"),
    optimizer("ademamix", "[optimizer]\nmatrices = \"ademamix\"\nothers = \"ademamix\"\n"),
    optimizer("muon_lerp", "[optimizer]\nmuon_form = \"lerp\"\nmuon_nesterov = false\nmuon_scale = \"spectral\"\n"),
    optimizer("muon_momenta", "[optimizer]\nmuon_scale = \"none\"\nmuon_momentum_warmup = 5\nmuon_momentum_cooldown = 6\n"),
    optimizer("muon_without_momentum", "[optimizer]\nmuon_momentum = 0.0\nmuon_lr_multiplier = 2.0\n"),
    optimizer("moments_bf16", "[optimizer]\nfirst_moment = \"bf16\"\nsecond_moment = \"bf16_stochastic\"\n"),
    optimizer("qk_clip", "[optimizer]\nqk_clip = 0.02\n"),
    optimizer("optimizer_rules",
              "[[optimizer.rules]]\npattern = \"*.out.weight\"\noptimizer = \"adamw\"\nlr_multiplier = 0.5\ndecay_multiplier = 2.0\n"),
    {"init_rules", "llama-small",
     "init = [{ pattern = \"*.down.weight\", kind = \"truncated\", residual_scaled = true }, "
     "{ pattern = \"*.qkv.weight\", kind = \"uniform\" }, { pattern = \"*.out.weight\", kind = \"zero\" }, "
     "{ pattern = \"*.gate_up.weight\", kind = \"fan_in\", gain = 0.7 }]\n"},
    {"mup", "llama-small", "tied = false\nmup_base_width = 8\n"},
    {"relu2", "llama-small", "mlp = \"relu2\"\nrotary_fraction = 0.5\n"},
    {"zaya_dense", "zaya-tiny", "moe.experts = 0\n"},
    {"zaya_sign", "zaya-tiny", "moe.balance = \"sign\"\n"},
    {"lora", "llama-small", "lora.rank = 3\nlora.alpha = 6.0\n"},
    optimizer("freeze", "[optimizer]\nfreeze = [\"embed.*\", \"layers.0.*\"]\n"),
};

const Case& case_of(const std::string& name) {
  for (const Case& c : kCases)
    if (c.name == name) return c;
  throw Error("no case " + name);
}

std::string stage_text(const std::string& name, int steps, const std::string& more) {
  return fmt::format("[[stages]]\nname = \"{}\"\nsteps = {}\nbatch = 4\nmicro_batch = 2\nsequence = 48\nwarmup = 3\nlr = 1e-2\n{}",
                     name, steps, more);
}

std::string recipe_of(const TempDir& folder, const Case& c) {
  const std::string stages = *c.stage == 0 ? stage_text("only", 20, "")
                                           : stage_text("first", 10, "") + stage_text("second", 10, c.stage);
  std::string heads;
  for (const char* line : {"kv_heads = 2\n", "head_width = 8\n"})
    if (std::string(c.options).find(std::string(line).substr(0, 8)) == std::string::npos) heads += line;
  return fmt::format(
      "[run]\nfolder = \"{0}/run\"\nprecision = \"{3}\"\n[tokenizer]\nkind = \"characters\"\n[data]\nfolder "
      "= \"{0}/data\"\n"
      "[[data.sources]]\nname = \"words\"\npath = \"{1}\"\ndocuments = \"blank_line\"\n"
      "[samples]\nprompts = [{7}]\ntokens = 4\n{4}[model]\npreset = \"{2}\"\nwidth = 24\nlayers = "
      "2\nheads = 4\nhidden = 40\n"
      "context = 48\n{5}{6}moe.hidden = 16\nmoe.router_width = 8\nmoe.balance_rate = 1e-3\n{8}",
      folder.path(), fixture("golden/text.txt"), c.preset, std::string(c.name) == "llama" ? "bf16" : "f32", stages, heads,
      c.options, c.prompts, c.sections);
}

std::vector<std::string> curve(const std::string& family, const std::string& isa) {
  const TempDir folder;
  write_text(folder / "recipe.toml", recipe_of(folder, case_of(family)));
  const ProcessResult r =
      run_process({"/proc/self/exe", "--gtest_filter=GoldenChild.*", "--gtest_also_run_disabled_tests"},
                  {"INGOT_TEST_RECIPE=" + folder / "recipe.toml", "INGOT_ISA=" + isa});
  EXPECT_EQ(r.exit_code, 0) << r.output;
  return losses(folder / "run");
}

class Golden : public ::testing::TestWithParam<const char*> {};

TEST_P(Golden, LossCurveIsTheSameOnEveryInstructionSet) {
  const std::string family = GetParam(), path = fixture("golden/" + family + ".txt");
  std::string expected = read_text(path);
  for (const Isa isa : kEveryIsa) {
    if (!cpu_has(isa)) continue;
    std::string found;
    for (const std::string& line : curve(family, isa_name(isa))) found += line + "\n";
    if (std::getenv("INGOT_WRITE_GOLDEN") != nullptr && isa == Isa::generic)
      write_text(path, expected = found);
    EXPECT_EQ(found, expected) << family << " on " << isa_name(isa);
  }
}

std::vector<const char*> names() {
  std::vector<const char*> all;
  for (const Case& c : kCases) all.push_back(c.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Families, Golden, ::testing::ValuesIn(names()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ingot::test
