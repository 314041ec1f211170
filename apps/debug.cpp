// `ingot debug`: dump the tensors of one step by tape name, and compare two dumps to find the first op that
// differs.
#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "tape/op.h"
#include "train/dump.h"

namespace ingot {

void add_debug_command(CLI::App& app, int& code) {
  struct DebugArguments {
    std::string recipe, out, left, right, kernels = "strict";
    double tolerance = 0;
  };
  auto o = std::make_shared<DebugArguments>();
  CLI::App* c = app.add_subcommand("debug", "dump the tensors of one step by name, or compare two dumps");
  c->require_subcommand(1);
  CLI::App* dump = c->add_subcommand("dump", "write every tensor of the next step's first micro-batch");
  dump->add_option("recipe", o->recipe, "recipe file (TOML)")->required();
  dump->add_option("--out", o->out, "safetensors file to write")->required();
  dump->add_option("--kernels", o->kernels, "strict, any or reference")->capture_default_str();
  dump->allow_extras();
  dump->callback([=, &code] {
    set_kernel_policy(enum_from<KernelPolicy>(o->kernels, "kernel policy"));
    dump_step(real_file_system(), load_recipe(o->recipe, dump->remaining()), o->out);
    std::cout << o->out << "\n";
    code = 0;
  });
  CLI::App* compare = c->add_subcommand("compare", "name the first tensor, in execution order, that differs");
  compare->add_option("left", o->left, "dump")->required();
  compare->add_option("right", o->right, "dump")->required();
  compare
      ->add_option("--tolerance", o->tolerance,
                   "largest |difference| / max |value| that counts as equal; 0: bits")
      ->check(in(up_to(1e30)))
      ->capture_default_str();
  compare->callback([=, &code] {
    const DumpComparison result = compare_dumps(real_file_system(), o->left, o->right, o->tolerance);
    print_text(result.text);
    code = result.equal ? 0 : 1;
  });
}

}  // namespace ingot
