// A training step of llm.c's train_gpt2.c, paced by bench/compare: {"ready": ...} after the warm-up, then a line for each line read.
// Random weights in memory, so that no checkpoint is needed; the step is that of its own main: forward, zeroed gradients, backward, AdamW.
//
//   cc <llm.c's CFLAGS> -I <llm.c> llmc_step.c -o llmc_step -lm        bench/peers/setup does
//   llmc_step layers heads width vocabulary batch length warm-up
#define TESTING  // without its main
#include "train_gpt2.c"

static uint64_t state = 1;

static float random_value() {  // even, with GPT-2's standard deviation
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return 0.02f * 3.4641016f * ((float)(state >> 40) / 16777216.0f - 0.5f);
}

static double seconds() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void make_model(GPT2* model, GPT2Config config) {
    memset(model, 0, sizeof *model);
    model->config = config;
    fill_in_parameter_sizes(model->param_sizes, config);
    for (int i = 0; i < NUM_PARAMETER_TENSORS; ++i) model->num_parameters += model->param_sizes[i];
    model->params_memory = malloc_and_point_parameters(&model->params, model->param_sizes);
    float* p = model->params_memory;
    for (int i = 0; i < NUM_PARAMETER_TENSORS; p += model->param_sizes[i++]) {
        const int norm = i == 2 || i == 8 || i == 14;  // weights of norms
        const int matrix = i < 2 || i == 4 || i == 6 || i == 10 || i == 12;
        for (size_t j = 0; j < model->param_sizes[i]; ++j) p[j] = norm ? 1.0f : matrix ? random_value() : 0.0f;
    }
}

int main(int count, char** argument) {
    if (count != 8) return fprintf(stderr, "usage: llmc_step layers heads width vocabulary batch length warm-up\n"), 2;
    int value[8];
    for (int i = 1; i < 8; ++i) value[i] = atoi(argument[i]);
    const int vocabulary = value[4], batch = value[5], length = value[6], tokens = batch * length;
    GPT2Config config = {.max_seq_len = length < 1024 ? 1024 : length, .vocab_size = vocabulary, .padded_vocab_size = (vocabulary + 127) / 128 * 128,
                         .num_layers = value[1], .num_heads = value[2], .channels = value[3]};
    GPT2 model;
    make_model(&model, config);
    int* ids = mallocCheck((tokens + 1) * sizeof(int));
    for (int step = 0;; ++step) {
        if (step > value[7] && getchar() == EOF) return 0;
        for (int i = 0; i <= tokens; ++i) ids[i] = (int)((random_value() / 0.0692821f + 0.5f) * 0.999f * vocabulary);
        const double begin = seconds();
        gpt2_forward(&model, ids, ids + 1, batch, length);
        gpt2_zero_grad(&model);
        gpt2_backward(&model);
        gpt2_update(&model, 1e-4f, 0.9f, 0.999f, 1e-8f, 0.0f, step + 1);
        const double time = seconds() - begin;
        if (step == value[7]) printf("{\"ready\": true, \"version\": \"%s\", \"parameters\": %zu, \"loss\": %f}\n", LLMC_VERSION, model.num_parameters, model.mean_loss);
        if (step > value[7]) printf("{\"seconds\": %.6f, \"tokens_per_second\": %.3f, \"loss\": %f}\n", time, tokens / time, model.mean_loss);
        fflush(stdout);
    }
}
