// `ingot doctor`: what of this machine and program helps, slows down or prevents runs, and what to do about it.
#include "measure/doctor.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/bench.h"
#include "base/file_system.h"
#include "train/memory_policy.h"

namespace ingot {

void add_doctor_command(CLI::App& app, int& code) {
  struct DoctorArguments {
    std::string folder = ".", disk = "64MiB", json;
  };
  auto o = std::make_shared<DoctorArguments>();
  CLI::App* c = app.add_subcommand("doctor", "look at this machine: what helps, slows down or prevents runs");
  c->footer("Exit code 0 unless something will not work.");
  c->add_option("folder", o->folder, "where runs will be")->capture_default_str();
  c->add_option("--disk", o->disk, "bytes to write there three times, to measure; 0: none")
      ->capture_default_str();
  c->add_option("--json", o->json, "write the findings to this file too");
  c->callback([o, &code] {
    DoctorOptions options;
    options.folder = o->folder;
    options.disk_bytes = o->disk == "0" ? 0 : parse_memory(o->disk, "--disk");
    const std::vector<Finding> findings = examine(options);
    std::cout << to_text(findings);
    if (!o->json.empty()) write_file_atomically(real_file_system(), o->json, to_json(findings));
    code = any_problem(findings) ? 1 : 0;
  });
}

}  // namespace ingot
