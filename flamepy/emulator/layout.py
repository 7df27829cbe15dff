"""Where things lie: the slots of a launch and of a warp, which Python, the runtime and the compiled kernels share.

A launch is an array of 64-bit words. A warp is a block of bytes: words, then vectors of 32 lanes, then the registers that live
across basic blocks. Addresses are plain integers.
"""

LANES = 32
FULL = 0xFFFFFFFF

# ---- what a device pointer looks like. No host address has these bits, so neither can be taken for the other ------------------------
DEVICE_BASE = 1 << 52
SHARED_WINDOW = 1 << 56  # generic addresses of shared memory
LOCAL_WINDOW = 1 << 57
GLOBAL, SHARED, LOCAL, GENERIC = range(4)
APART = 256  # bytes before and after a local array that is watched

# ---- a byte's state ------------------------------------------------------------------------------------------------------------------
ALLOCATED, WRITTEN, READ_NOW, WRITTEN_NOW, COPYING, CONSTANT = 1, 2, 4, 8, 16, 32

# ---- launch: words -------------------------------------------------------------------------------------------------------------------
ERROR, AT, THREAD, ADDRESS, DETAIL, OTHER_AT, OTHER_THREAD, WARP_NOW = range(8)
SPACES, GROUP = 96, 10  # three groups of words: global, shared, local memory
HOST, TOP, STATE, FIRST, WRITES, READS, READERS, ATOMICS, RELEASED, BYTES = range(GROUP)
PARAMETERS, TABLE, KINDS, TARGETS, FALLS, RUNS = range(32, 38)
GRID, BLOCK = 38, 41  # three words each
THREADS, WARPS, BLOCKS, BLOCK_NOW, PHASE, BLOCK_PHASE, BARRIER_PHASE = range(44, 51)
BUDGET, STEPS, WARP_BASE, WARP_BYTES, ORDER, COUNTING, COUNTED, STARTS = range(51, 59)
STARTED, SLICE, SHARED_STATE, LINES = range(59, 63)  # the state of shared memory when a block begins; each block's line
LIMIT = 63
ARRIVED = 64  # 16 words: threads that came to a barrier and went on
LOOSE = 80  # whether anything but a barrier of the block may order warps: fences, or barriers of some warps
ATOMIC_SEEN = 81  # whether anything was written atomically in this launch
FORGIVING = 82  # whether races are let pass; 2 once one has
RACED_AT, STOOD_AT = 83, 84  # of that one: the later instruction, and the block where a thread waited at a barrier then, or -1
CHANGED, IDLE = 85, 86  # whether memory was written since; basic blocks that only asked for what did not change
PARTED, MEETS = 87, 88  # whether what lanes do together stands apart in blocks; for each block a number of the line of what it is, or 0
NARROW = 89  # whether anything was touched in this launch that is less than a word
FENCE_SEEN = 91  # whether any thread of this launch made a fence
PUBLISHED = 92  # for each block, for writes and then for reads: a time for the block, one for each thread; what lies before is fenced
TURNS = 8  # of warps, in the order "chance"
ROWS, ROW_STAMP = 9, 10  # what was heard by what others released (runtime_heard.py), or 0; a number of each release
ROW_WORDS, ROW_MOST = 1024, 8192  # rows for words, half of them of shared memory; the most threads of a launch for which there are rows
ROW_WARPS, ROW_BARRIERS, ROW_COUNT = ROW_WORDS, ROW_WORDS + 32, ROW_WORDS + 48
WATCHING = 93  # whether this launch is watched for races: who touched what is recorded
POOL, POOL_USED = 94, 95  # cells of words that several read: where they are, and how many are used
POOL_CELLS = 1 << 21
VARIABLES = 90  # where the addresses of the module's own variables are
PENDING, PENDING_WORDS = SPACES + 3 * GROUP, 35  # for each of 16 barriers: what those that arrived have heard of 32 warps, ...
LAUNCH_WORDS = PENDING + 16 * PENDING_WORDS  # ... and the last that they acquired and fenced, for all and in the block

# ---- counters, in COUNTED --------------------------------------------------------------------------------------------------------------
LOAD_SECTORS, STORE_SECTORS, LEAST_LOAD, LEAST_STORE, LOADED, STORED, WAVES, LEAST_WAVES, ATOMIC_SECTORS = range(9)
COUNTERS = 16

# ---- warp: words, then vectors (offsets in bytes) ------------------------------------------------------------------------------------
LAUNCH, INDEX, EXISTS, ACTIVE, PC, OTHER, EXITED, WAITING, BARRIER, BARRIER_COUNT, SYNCED, FIRST_THREAD = range(12)
W_PARAMETERS, VOTES, RESULT, ASYNC_COUNT, ASYNC_GROUP = range(12, 17)
BARRIER_KIND, GIVEN = 18, 19
NTID, CTAID, NCTAID, DYNAMIC, TAKEN_STEPS = 20, 23, 26, 29, 30
ALL_SYNCED, MET = 32, 33  # what is ordered before the warp: its lanes' accesses, their reads
HELD, HOLD, HELD_ALIVE = 39, 40, 41  # lanes that wait for others of their mask; whether some do from now on; who had not ended then
MET_NOW, GROUP_STEPS = 44, 45  # when lanes of the warp met last; how many instructions of a warp group it has done
JOINT, JOINT_LANES = 42, 43  # how those that have met are run (ALONE, KEEP, ALL), and who they are
MOVED, SINCE, POLLED, AHEAD = 34, 35, 36, 37  # lanes that ran since this step; whether an atomic did; whether others are let run ahead
LANE_PC = 512
TID = 640  # three vectors of 32-bit numbers
WAIT_AT = 1024
ADDRESSES = 1280  # 32 addresses of a memory instruction
VALUES = 1536  # sixteen vectors of up to 64 bits
ASYNC = VALUES + 16 * 256
ASYNC_ENTRIES, ASYNC_BYTES = 2048, 48
TILE = ASYNC + ASYNC_ENTRIES * ASYNC_BYTES  # two matrices and their product, in float64
KNOWN = TILE + 8 * (16 * 16 + 16 * 8 + 16 * 8)  # 32 x 32 times: up to when a lane knows what another has done
MET_OF = KNOWN + 8 * LANES * LANES  # the same, of what it has read: they met, in a shuffle or a vote
HEARD = MET_OF + 8 * LANES * LANES  # 32 phases: what another warp did before is ordered before this one, by a named barrier
# Of each lane: what others released up to this phase is ordered before it; its last fence; the same, with fences of the block alone.
ACQUIRED, FENCED, FENCED_HERE = (HEARD + 8 * LANES * k for k in (1, 2, 3))
SUMS = HEARD + 8 * LANES * 4  # 64 vectors of 32-bit numbers: what a warp has of a warp group's product
GROUP_WORK = SUMS + 64 * 4 * LANES  # 256 instructions of wgmma: which of the group's, by what thread, its number
REGISTERS = GROUP_WORK + 8 * 256

# ---- program counters and kinds of block ends ------------------------------------------------------------------------------------------
EXIT = 1 << 30
NOBODY = EXIT + 1
BRANCH, WAIT, SPLIT, ARRIVE = range(4)
ALONE, KEEP, ALL = range(3)
COLLECTIVE = 4  # a bit beside them: the lanes of a warp do something together in this block

# ---- a record of an access: phase | thread | warp barriers in the phase | bytes of the word | atomic | instruction -----------------------
R_PHASE, R_THREAD, R_SYNC, R_BYTES, R_ATOMIC = 36, 26, 18, 14, 13
R_INSTRUCTIONS = (1 << R_ATOMIC) - 1
SYNC_TURNS = 256  # warp barriers after which a phase ends, so that phase and number are a time that only grows
LAST_PHASE = (1 << 27) - 1

# ---- what can be wrong ---------------------------------------------------------------------------------------------------------------
BOUNDS, ALIGNMENT, UNWRITTEN, RACE, TRAP, LANE, MASK, DEADLOCK = range(1, 9)
ENDLESS, STILL_COPYING, TOO_MANY, WINDOW, DIVERGED, READ_RACE, READ_ONLY, INDEX_FAULT, STRAY = range(9, 18)

# ---- words of a warp that are 0 when a block begins ----------------------------------------------------------------------------------
BLANK = PC, EXITED, WAITING, SYNCED, ASYNC_COUNT, ASYNC_GROUP, TAKEN_STEPS, MOVED, SINCE, POLLED, AHEAD, HELD, HOLD, JOINT, GROUP_STEPS
