#include "textflag.h"
#include "funcdata.h"

// Why the vDSO may run on a goroutine's stack here:
//
// Stack. Neither function is NOSPLIT, so the prologue grows the stack first.
// The call is made from the top of the frame, and the frame below it is the
// room for C code. SP is aligned to 16 bytes as the C ABI wants; R12 keeps the
// old one, because C preserves R12, BX, BP and R13 to R15.
//
// Registers. ABI0 lets a function spoil everything but SP, and the wrapper that
// Go code calls through restores R14 (g) and X15 (zero).
//
// Signals. Handlers run on the signal stack and take g from thread-local
// storage. A PC outside Go text, or in assembly, is never a safe point, so there
// is no preemption between the prologue and RET, and hence no stack scan, no
// stack move and no change of thread. The profiler's unwinder finds no function
// at such a PC and books the sample under runtime._VDSO.

#define CLOCK_BOOTTIME 7
#define STACK 5120 // vdsoStack
#define PROBE 16384
#define PATTERN $0x5AA55AA5C33CC33C

// func callVDSO(fn uintptr) int64
TEXT ·callVDSO(SB), 0, $5152-16 // STACK+32
	NO_LOCAL_POINTERS
	MOVQ	fn+0(FP), AX
	MOVQ	SP, R12
	LEAQ	STACK(SP), SP
	ANDQ	$~15, SP	// moves SP down: at least STACK-8 bytes stay below
	MOVL	$CLOCK_BOOTTIME, DI
	LEAQ	0(SP), SI	// struct timespec
	CALL	AX
	MOVQ	0(SP), CX	// sec
	MOVQ	8(SP), DX	// nsec
	MOVQ	R12, SP
	TESTL	AX, AX
	JNE	failed
	IMULQ	$1000000000, CX
	ADDQ	DX, CX
	MOVQ	CX, ret+8(FP)
	RET
failed:
	MOVQ	$0xC000000000000000, CX // readFailed
	MOVQ	CX, ret+8(FP)
	RET

// func probeVDSO(fn uintptr) uintptr
TEXT ·probeVDSO(SB), 0, $16416-16 // PROBE+32
	NO_LOCAL_POINTERS
	MOVQ	SP, DI
	MOVQ	$(PROBE/8), CX
	MOVQ	PATTERN, AX
	CLD
	REP
	STOSQ
	MOVQ	fn+0(FP), AX
	MOVQ	SP, R12
	LEAQ	PROBE(SP), SP
	ANDQ	$~15, SP
	MOVQ	SP, R13
	MOVL	$CLOCK_BOOTTIME, DI
	LEAQ	0(SP), SI
	CALL	AX
	MOVQ	R12, SP
	TESTL	AX, AX
	JNE	failed
	MOVQ	PATTERN, AX
	MOVQ	SP, DI
scan:
	CMPQ	0(DI), AX
	JNE	found
	ADDQ	$8, DI
	CMPQ	DI, R13
	JLT	scan
found:
	SUBQ	DI, R13	// from the deepest spoilt word up to the caller's SP
	MOVQ	R13, ret+8(FP)
	RET
failed:
	MOVQ	$0, ret+8(FP)
	RET
