// The commands that measure, one file each: the parts of `ingot bench`, `ingot profile` and `ingot doctor`.
#pragma once

namespace CLI {
class App;
}

namespace ingot {

void add_bench_machine(CLI::App& bench, int& code);
void add_bench_gemm(CLI::App& bench, int& code);
void add_bench_ops(CLI::App& bench, int& code);
void add_bench_device(CLI::App& bench, int& code);
void add_bench_decode(CLI::App& bench, int& code);
void add_bench_cluster(CLI::App& bench, int& code);
void add_bench_step(CLI::App& bench, int& code);
void add_profile_command(CLI::App& app, int& code);
void add_doctor_command(CLI::App& app, int& code);
void add_burnin_command(CLI::App& app, int& code);

}  // namespace ingot
