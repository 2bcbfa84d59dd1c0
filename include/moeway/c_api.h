// The C interface of moeway: everything the library can do, for C, for other languages, and below the C++ interface
// (moeway.h).
//
// Conventions
// - Every function that can fail returns a moeway_status. The message of the calling thread's last failure is
//   moeway_last_error().
// - Structs that may grow open with `struct_size`. Fill them with their *_init function, then set what you need. These
//   functions are inline: they know the struct as the caller was compiled with it, so a newer library sees how much of
//   it there is.
// - Objects may be used by one thread at a time, different ones at the same time; by a fork only to close or destroy.
// - A call that all ranks must make, in the same order on all of them, is marked "collective".
// - No function takes ownership of tensor memory. On a CPU device a call has read its inputs and written its outputs
//   when it returns, so the caller may reuse them at once.
#ifndef MOEWAY_C_API_H_
#define MOEWAY_C_API_H_

#include <moeway/c_api_types.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Bootstrap: how the ranks of a job find each other

typedef struct moeway_bootstrap moeway_bootstrap;
typedef struct moeway_thread_group moeway_thread_group;

// Ranks as threads of one process: make one group, then one bootstrap per rank. The group may be destroyed when every
// rank has its bootstrap.
MOEWAY_API moeway_status moeway_thread_group_create(int32_t num_ranks, moeway_thread_group** group);
MOEWAY_API void moeway_thread_group_destroy(moeway_thread_group* group);
MOEWAY_API moeway_status moeway_bootstrap_create_threads(moeway_thread_group* group, int32_t rank,
                                                         moeway_bootstrap** bootstrap);

// Ranks as processes of one user on one host, which meet in `directory`: it must exist, belong to this user and be
// closed to others (mode 0700). One job per directory. Collective; returns when all ranks are there.
MOEWAY_API moeway_status moeway_bootstrap_create_local(const char* directory, int32_t rank, int32_t num_ranks,
                                                       int64_t timeout_ms, moeway_bootstrap** bootstrap);

// Ranks that reach rank 0 at address:port. `secret` must be the same non-empty text on all ranks; who does not know it
// is turned away. The secret itself never crosses the network; the gathered bytes do, unencrypted. Collective; returns
// when all ranks are there.
MOEWAY_API moeway_status moeway_bootstrap_create_tcp(const char* address, int32_t port, const char* secret,
                                                     int32_t rank, int32_t num_ranks, int64_t timeout_ms,
                                                     moeway_bootstrap** bootstrap);

// Rank, size and rendezvous from the environment that torchrun, Open MPI or Slurm set, or from MOEWAY_RANK,
// MOEWAY_WORLD_SIZE, MOEWAY_ADDRESS, MOEWAY_PORT and MOEWAY_SECRET, which come first. docs/bootstrap.md has the table.
// Collective.
MOEWAY_API moeway_status moeway_bootstrap_create_env(int64_t timeout_ms, moeway_bootstrap** bootstrap);

// A caller's own all-gather: `all_gather(context, in, bytes, out)` must deliver the `bytes` bytes of every rank, in
// rank order, to `out` on every rank, and return 0, or another value if it failed. It is called from inside collective
// calls of this library only, and from moeway_all_to_all_create and moeway_communicator_create alone.
typedef int32_t (*moeway_all_gather_fn)(void* context, const void* in, size_t bytes, void* out);
MOEWAY_API moeway_status moeway_bootstrap_create_callback(int32_t rank, int32_t num_ranks,
                                                          moeway_all_gather_fn all_gather, void* context,
                                                          moeway_bootstrap** bootstrap);

MOEWAY_API void moeway_bootstrap_destroy(moeway_bootstrap* bootstrap);
MOEWAY_API int32_t moeway_bootstrap_rank(const moeway_bootstrap* bootstrap);
MOEWAY_API int32_t moeway_bootstrap_size(const moeway_bootstrap* bootstrap);

// ---- Communicator

typedef struct moeway_communicator moeway_communicator;

typedef struct moeway_communicator_options {
  uint32_t struct_size;
  int64_t timeout_ms;  // Limit of every collective step at creation. Default 30000, or MOEWAY_TIMEOUT_MS.
  // Where this rank's tensors lie and its kernels run. The type must be equal on all ranks. Default CPU. A CUDA rank
  // names its device as its process numbers devices; several ranks may share one.
  moeway_device_type device_type;
  int32_t device_index;
} moeway_communicator_options;

static inline void moeway_communicator_options_init(moeway_communicator_options* options) {
  memset(options, 0, sizeof(*options));
  options->struct_size = (uint32_t)sizeof(*options);
  options->timeout_ms = moeway_default_timeout_ms();
}

// Collective. `options` may be null. The communicator takes `bootstrap` over, also when the call fails; do not destroy
// it. A mistake in one rank's arguments is an error of all ranks, with its reason.
MOEWAY_API moeway_status moeway_communicator_create(moeway_bootstrap* bootstrap,
                                                    const moeway_communicator_options* options,
                                                    moeway_communicator** communicator);
MOEWAY_API int32_t moeway_communicator_rank(const moeway_communicator* communicator);
MOEWAY_API int32_t moeway_communicator_size(const moeway_communicator* communicator);
// The transport in use, for example "host processes". Static memory.
MOEWAY_API const char* moeway_communicator_transport(const moeway_communicator* communicator);

// Waits until every rank has called it. Collective.
MOEWAY_API moeway_status moeway_communicator_barrier(moeway_communicator* communicator);

// Releases what the communicator holds. Not collective; never waits for a peer; a second call does nothing. AllToAll
// objects made from it stay valid until they are closed themselves. Who waits for this rank hears of it.
MOEWAY_API moeway_status moeway_communicator_close(moeway_communicator* communicator);
// close, then free the object. Null is allowed.
MOEWAY_API void moeway_communicator_destroy(moeway_communicator* communicator);

// ---- AllToAll: dispatch and combine of one shape

typedef enum moeway_layout MOEWAY_ENUM_TYPE {
  MOEWAY_EXPERT_PADDED = 0,  // x [L, capacity, H]: for masked grouped GEMM.
  MOEWAY_EXPERT_PACKED = 1,  // x [rows, H]: experts one after another, each from a multiple of `alignment`: contiguous.
  // x [W / R * M, H]: token t of group g (without replicas: of rank g) in row g * M + t: for fused kernels that gather.
  MOEWAY_TOKEN_MAJOR = 2
} moeway_layout;

typedef enum moeway_scales MOEWAY_ENUM_TYPE {
  MOEWAY_SCALES_NONE = 0,
  MOEWAY_SCALES_F32 = 1,    // One float32 per block of 128 elements.
  MOEWAY_SCALES_UE8M0 = 2,  // One UE8M0 byte per block of 128 elements.
  MOEWAY_SCALES_BYTES = 3   // `scale_bytes` opaque bytes a token.
} moeway_scales;

// Whether dispatch makes fp8 of bf16, with a scale for each block of 128 elements: docs/quantisation.md.
typedef enum moeway_quantise MOEWAY_ENUM_TYPE {
  MOEWAY_QUANTISE_NONE = 0,         // x is of dispatch_dtype, with scales if the config has them.
  MOEWAY_QUANTISE_LARGEST = 1,      // x is bf16; a scale is the block's largest magnitude / 448. With f32 scales.
  MOEWAY_QUANTISE_POWER_OF_TWO = 2  // The same, rounded up to a power of two. With f32 or ue8m0 scales.
} moeway_quantise;

typedef enum moeway_weights MOEWAY_ENUM_TYPE {
  MOEWAY_WEIGHTS_AT_DISPATCH = 0,  // They travel with the tokens; a rank sends one weighted sum of its rows per token.
  MOEWAY_WEIGHTS_AT_COMBINE = 1    // Rows come back one by one; the owner weighs and adds them. Not for token_major.
} moeway_weights;

// What becomes of rows that max_recv_tokens leaves no room for; nothing is ever written for them. ERROR: dispatch fails with
// MOEWAY_OVERFLOW where it happens, before it writes a row, and ranks that wait for this one fail with MOEWAY_PEER_LOST.
// DROP: the last ones in the order of rows are dropped and counted; combine leaves them out.
typedef enum moeway_overflow MOEWAY_ENUM_TYPE { MOEWAY_OVERFLOW_ERROR = 0, MOEWAY_OVERFLOW_DROP = 1 } moeway_overflow;

typedef enum moeway_execution MOEWAY_ENUM_TYPE {
  MOEWAY_FIBERS = 0,   // A fiber per warp, all in the calling thread: fastest on CPUs.
  MOEWAY_THREADS = 1,  // An operating-system thread per warp: what ThreadSanitizer can see through.
  MOEWAY_LANES = 2     // 32 fibers per warp: slow; runs lane code as a GPU would, for tests.
} moeway_execution;

typedef struct moeway_all_to_all_config {
  uint32_t struct_size;
  // Agreed: must be equal on all ranks; creation fails on all ranks if they differ.
  int32_t num_experts;          // E >= 1
  int32_t topk;                 // K, 1 to E: columns of topk_idx.
  int64_t hidden;               // H >= 1: elements of a row of x (typed dispatch) and of combine's rows and outputs.
  int64_t max_tokens;           // M >= 1: most tokens of a rank in one call.
  moeway_dtype dispatch_dtype;  // bf16 (default), f16, f32, f8_e4m3 or bytes.
  int64_t token_bytes;       // Bytes of a row of x when dispatch_dtype is bytes, else 0 (default): follows from hidden.
  moeway_scales scales;      // Default none.
  int64_t scale_bytes;       // Bytes of a token's scales with MOEWAY_SCALES_BYTES, else 0 (default).
  moeway_quantise quantise;  // Default none. Else x is bf16 without scales; dispatch_dtype (f8_e4m3) and scales follow.
  moeway_dtype row_dtype;    // The rows given to combine: bf16 (default), f16 or f32.
  moeway_dtype output_dtype;  // The sums that combine writes: bf16 (default), f16 or f32.
  moeway_layout layout;       // Default expert_padded.
  int64_t alignment;          // Rows, expert_packed only: each expert's first row is a multiple of it. Default 1.
  moeway_weights weights;     // Default at dispatch.
  int32_t distinct_experts;   // 1: the caller promises that no token names an expert twice. Then an expert can get at
                              // most W / R * M rows, else K times as many, and expert_padded is that much smaller. A
                              // broken promise is an error of dispatch. Default 0: the same expert twice is two rows.
  // R, a divisor of W; default 1. Ranks 0 to R - 1 are a group, R to 2 R - 1 the next and so on, and all ranks of a
  // group give the same x, scales, topk_idx and topk_weights: tensor-parallel ranks of one data-parallel rank. Each
  // sends a part of the group's T tokens, the first T mod R of them ceil(T / R) consecutive ones, the others
  // floor(T / R), and combine gives all T sums, the same bits, to all of them. That members were given different
  // numbers of tokens is a MISMATCH of dispatch_recv on all ranks; that other things differ is not noticed: they wait
  // for each other until the deadline, or get rows and sums of what one of them gave.
  int32_t replicas;
  // Most rows in dispatch's output. expert_padded: of an expert (its capacity). expert_packed: of all experts of a rank, with
  // padding; a multiple of alignment. token_major: W / R * M or more, as rows have fixed places. 0 (default): the worst case.
  int64_t max_recv_tokens;
  moeway_overflow overflow;  // Default error.
  // Local: each rank may choose.
  moeway_execution execution;  // CPU ranks. Default fibers. Results do not depend on it.
  int32_t num_warps;   // CPU ranks: warps that share a call's work, 1 to 256. Default 4. Results do not depend on it.
  int64_t timeout_ms;  // Limit of every wait for a peer. Default 30000, or MOEWAY_TIMEOUT_MS.
  // CUDA ranks: multiprocessors that a call may take; fewer leave the others to kernels that run at the same time. 0
  // (default): as many as the rank can have. Results do not depend on it.
  int32_t num_sms;
} moeway_all_to_all_config;

static inline void moeway_all_to_all_config_init(moeway_all_to_all_config* config) {
  memset(config, 0, sizeof(*config));
  config->struct_size = (uint32_t)sizeof(*config);
  config->alignment = 1;
  config->replicas = 1;
  config->num_warps = 4;
  config->timeout_ms = moeway_default_timeout_ms();
}

// What a rank of a job needs. All in units of one element of the thing named.
typedef struct moeway_all_to_all_sizes {
  uint32_t struct_size;
  int64_t first_local_expert;  // The rank owns num_local_experts experts from this one on.
  int64_t num_local_experts;   // L; may be 0.
  int64_t expert_capacity;     // Most rows an expert can get; at most max_recv_tokens if that is set.
  int64_t max_rows;    // Rows of x that dispatch can write: packed: all rows with padding; padded: L * capacity;
                       // token_major: W / R * M. packed: at most max_recv_tokens if that is set.
  int64_t row_bytes;   // Bytes of one row of x.
  int64_t num_scales;  // Scales of one token, in elements of the scales' dtype (bytes when opaque); 0 without scales.
  int64_t heap_bytes;  // Symmetric heap, which peers write to. The same on all ranks.
  int64_t workspace_bytes;  // Private memory of this rank.
} moeway_all_to_all_sizes;

static inline void moeway_all_to_all_sizes_init(moeway_all_to_all_sizes* sizes) {
  memset(sizes, 0, sizeof(*sizes));
  sizes->struct_size = (uint32_t)sizeof(*sizes);
}

// The sizes for `rank` of `num_ranks`. Allocates nothing; fails as creation would if the config is refused or a size
// leaves 64 bits.
MOEWAY_API moeway_status moeway_all_to_all_get_sizes(const moeway_all_to_all_config* config, int32_t rank,
                                                     int32_t num_ranks, moeway_all_to_all_sizes* sizes);

// Who owns what: the first E mod W ranks own ceil(E / W) consecutive experts, the others floor(E / W). -1 if an
// argument is out of range.
MOEWAY_API int32_t moeway_expert_owner(int32_t expert, int32_t num_experts, int32_t num_ranks);
MOEWAY_API int32_t moeway_first_expert(int32_t rank, int32_t num_experts, int32_t num_ranks);
MOEWAY_API int32_t moeway_num_local_experts(int32_t rank, int32_t num_experts, int32_t num_ranks);

typedef struct moeway_all_to_all moeway_all_to_all;

// Which dispatch a combine belongs to. Plain data; nothing to free. Valid until the second next dispatch_send of the
// same object.
typedef struct moeway_routing {
  uint64_t object;    // The AllToAll it came from.
  uint64_t dispatch;  // Its how-manieth dispatch, from 1.
  // 0, as dispatch_send leaves it; or 1, which the caller may set on all ranks: combine then takes every weight as 1 and
  // wants none itself. That is the backward of dispatch. In token_major the rows are summed already: it changes nothing.
  int32_t unweighted;
} moeway_routing;

// Collective. All memory is taken here; nothing is allocated later. A mistake on one rank is an error of all.
MOEWAY_API moeway_status moeway_all_to_all_create(moeway_communicator* communicator,
                                                  const moeway_all_to_all_config* config,
                                                  moeway_all_to_all** all_to_all);

typedef struct moeway_dispatch_input {
  uint32_t struct_size;
  moeway_tensor x;  // [T, H] dispatch_dtype (bytes: [T, token_bytes]; quantise: bf16); T from 0 to M, own to each rank,
                    // or with replicas to each group.
  moeway_tensor scales;  // [T, num_scales] f32, ue8m0 or bytes; data null and ndim 0 without scales, or with quantise.
  moeway_tensor topk_idx;      // [T, K] int32 or int64: experts, or -1 for no route.
  moeway_tensor topk_weights;  // [T, K] f32 with weights at dispatch; else ndim 0. Those of routes -1 are not read.
  // Optional (ndim 0): int32 [1], the number of tokens when the call runs, 0 to T. Rows behind it are not read, nor
  // written by combine. CUDA ranks read it on the device, in the stream's order, at every replay of a captured graph; it
  // must not change while the call runs. Out of range it counts as 0 there, and is the result of a later call.
  moeway_tensor num_tokens;
} moeway_dispatch_input;

typedef struct moeway_dispatch_output {
  uint32_t struct_size;
  moeway_tensor
      x;  // padded [L, >= capacity, H], packed [>= max_rows, H], token_major [max_rows, H] or ndim 0: see view.
  moeway_tensor scales;     // The same leading dimensions, then num_scales; ndim 0 without scales.
  moeway_tensor num_rows;   // int32 [L]: rows of each local expert, without dropped ones.
  moeway_tensor first_row;  // int64 [L]: first row of each local expert in x taken as [rows, H]. Optional (ndim 0); not
                            // token_major.
  moeway_tensor row_source;  // int32, x's leading dimensions, then 3: of each row the source rank (that sent it), its
                             // token (in the source's x) and k. Optional (ndim 0); not token_major.
  moeway_tensor row_weight;  // f32, x's leading dimensions, then 1: the weight of each row's route. Optional (ndim 0);
                             // weights at dispatch, not token_major.
  moeway_tensor topk_idx;    // token_major: int32 [max_rows, K]: local expert of route k of the row's token, -1 if k is
                             // not for this rank.
  moeway_tensor topk_weights;  // token_major: f32 [max_rows, K]: 0 where topk_idx is -1.
  moeway_tensor num_dropped;   // int32 [L]: rows of each local expert that there was no room for. Optional (ndim 0).
} moeway_dispatch_output;

static inline void moeway_dispatch_input_init(moeway_dispatch_input* input) {
  memset(input, 0, sizeof(*input));
  input->struct_size = (uint32_t)sizeof(*input);
}
static inline void moeway_dispatch_output_init(moeway_dispatch_output* output) {
  memset(output, 0, sizeof(*output));
  output->struct_size = (uint32_t)sizeof(*output);
}

// The four phases. A round is dispatch_send, dispatch_recv and then, if wanted, combine_send, combine_recv; each
// collective. The next dispatch_send may come before the combine_recv of the round before, not before its dispatch_recv
// (nor, while a view of that round is in use, before its combine_send). A send never waits for a peer. dispatch_send:
// delivers x[t] (and its scales) once to every rank that owns one of t's experts. Sets *routing.
MOEWAY_API moeway_status moeway_dispatch_send(moeway_all_to_all* all_to_all, const moeway_dispatch_input* input,
                                              moeway_routing* routing);
// dispatch_recv: rows of an expert come in order of (source rank, token, k); with replicas that is the order of (group,
// token, k). Elements of rows that hold nothing are left as they are.
MOEWAY_API moeway_status moeway_dispatch_recv(moeway_all_to_all* all_to_all, moeway_routing routing,
                                              const moeway_dispatch_output* output);
// combine_send: `rows` has the shape of dispatch's x with hidden elements of row_dtype. token_major: one row per
// received token, already weighted and summed over this rank's experts.
MOEWAY_API moeway_status moeway_combine_send(moeway_all_to_all* all_to_all, moeway_routing routing,
                                             const moeway_tensor* rows);
// combine_recv: writes y [T, H] output_dtype, T the rows of the dispatch's x. `topk_weights` [T, K] f32 with weights at
// combine, else null; null where routing.unweighted is set.
//
// Routes used again, as in training: a dispatch of other rows with the same topk_idx (and, if they matter, topk_weights)
// puts them at the same places, however many dispatches came in between; it costs what any dispatch does. The backward of
// combine is such a dispatch of y's gradient, whose rows times their row_weight are the gradients of combine's rows; the
// backward of dispatch is an unweighted combine, on that second dispatch's routing. docs/training.md has it all.
MOEWAY_API moeway_status moeway_combine_recv(moeway_all_to_all* all_to_all, moeway_routing routing,
                                             const moeway_tensor* topk_weights, const moeway_tensor* y);
// The same onto what y holds, for example what shared experts made of the tokens: the float32 sum starts from y, goes on
// as without it, and is rounded once. A token without routes leaves its row of y as it is.
MOEWAY_API moeway_status moeway_combine_recv_add(moeway_all_to_all* all_to_all, moeway_routing routing,
                                                 const moeway_tensor* topk_weights, const moeway_tensor* y);

// CUDA ranks: later calls of the object are enqueued on this cudaStream_t (null, as at creation: the default stream)
// and return at once; inputs may be overwritten, and outputs are there, in that stream's order. What kernels find wrong
// (a peer that is late or gone, an id out of range) is the result of a later call or of moeway_all_to_all_status. CPU
// ranks ignore it.
MOEWAY_API moeway_status moeway_all_to_all_set_stream(moeway_all_to_all* all_to_all, void* stream);

// Both halves in one call.
MOEWAY_API moeway_status moeway_dispatch(moeway_all_to_all* all_to_all, const moeway_dispatch_input* input,
                                         const moeway_dispatch_output* output, moeway_routing* routing);
MOEWAY_API moeway_status moeway_combine(moeway_all_to_all* all_to_all, moeway_routing routing,
                                        const moeway_tensor* rows, const moeway_tensor* topk_weights,
                                        const moeway_tensor* y);
// combine_send, then combine_recv_add.
MOEWAY_API moeway_status moeway_combine_add(moeway_all_to_all* all_to_all, moeway_routing routing,
                                            const moeway_tensor* rows, const moeway_tensor* topk_weights,
                                            const moeway_tensor* y);

// token_major without a copy: after a dispatch_recv whose output.x (and output.scales) had ndim 0, the received tokens
// where they lie in the symmetric heap, [max_rows, H]. Valid until this rank's next dispatch_send of the object; rows
// without a route hold anything.
MOEWAY_API moeway_status moeway_dispatch_view(moeway_all_to_all* all_to_all, moeway_routing routing, moeway_tensor* x,
                                              moeway_tensor* scales);

// OK, or the failure that ended this object's use; once it is closed, WRONG_STATE. MISMATCH and INTERNAL end an object
// too when a call of a round gives them.
MOEWAY_API moeway_status moeway_all_to_all_status(moeway_all_to_all* all_to_all);

// Releases the object's memory. Not collective; never waits for a peer; a second call does nothing.
MOEWAY_API moeway_status moeway_all_to_all_close(moeway_all_to_all* all_to_all);
// close, then free the object. Null is allowed.
MOEWAY_API void moeway_all_to_all_destroy(moeway_all_to_all* all_to_all);

#ifdef __cplusplus
}  // extern "C"
#endif

#include <moeway/c_api_stats.h>

#endif  // MOEWAY_C_API_H_
