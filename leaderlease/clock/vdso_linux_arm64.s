#include "textflag.h"
#include "funcdata.h"

// The comment in vdso_linux_amd64.s says why the vDSO may run on a goroutine's
// stack. What differs here:
//
// Stack. RSP is always aligned to 16 bytes. The return address is at the low
// end of the frame and the frame pointer just below it, so C code must not get
// there.
//
// Registers. C preserves R19 to R28, and g is R28. It may use R28 meanwhile, so
// a signal handler must not look for g there; see vdsoUsable.

#define CLOCK_BOOTTIME 7
#define STACK 5120 // vdsoStack
#define PROBE 16384
#define PATTERN $0x5AA55AA5C33CC33C

// Offsets in the runtime's structures; see layoutKnown.
#define g_m 48
#define m_gsignal 72
#define g_stack_lo 0

// func callVDSO(fn uintptr) int64
TEXT ·callVDSO(SB), 0, $5152-16 // STACK+32
	NO_LOCAL_POINTERS
	MOVD	fn+0(FP), R2
	MOVD	RSP, R19
	MOVD	$STACK, R3
	ADD	R19, R3, R3
	MOVD	$CLOCK_BOOTTIME, R0
	MOVD	R3, R1	// struct timespec
	MOVBU	·saveG(SB), R4
	CBZ	R4, call
	// Assembly is not preempted, so m stays the same until g is taken away.
	MOVD	g_m(g), R20
	MOVD	m_gsignal(R20), R20
	MOVD	g_stack_lo(R20), R20
	MOVD	g, (R20)
	MOVD	R3, RSP
	CALL	(R2)
	MOVD	ZR, (R20)
	B	done
call:
	MOVD	R3, RSP
	CALL	(R2)
done:
	MOVD	0(RSP), R3	// sec
	MOVD	8(RSP), R4	// nsec
	MOVD	R19, RSP
	CBNZW	R0, failed
	MOVD	$1000000000, R5
	MUL	R5, R3, R3
	ADD	R4, R3, R3
	MOVD	R3, ret+8(FP)
	RET
failed:
	MOVD	$0xC000000000000000, R3 // readFailed
	MOVD	R3, ret+8(FP)
	RET

// func probeVDSO(fn uintptr) uintptr
//
// It runs once, at start. A signal that finds no g in that one call would be
// the same risk as in all, so it saves g as well.
TEXT ·probeVDSO(SB), 0, $16416-16 // PROBE+32
	NO_LOCAL_POINTERS
	MOVD	fn+0(FP), R2
	MOVD	RSP, R19
	ADD	$16, R19, R21	// first word above the return address
	MOVD	$PROBE, R22
	ADD	R19, R22, R22
	MOVD	PATTERN, R23
	MOVD	R21, R3
paint:
	MOVD	R23, (R3)
	ADD	$8, R3
	CMP	R22, R3
	BLT	paint
	MOVD	$CLOCK_BOOTTIME, R0
	MOVD	R22, R1
	MOVBU	·saveG(SB), R4
	CBZ	R4, call
	MOVD	g_m(g), R20
	MOVD	m_gsignal(R20), R20
	MOVD	g_stack_lo(R20), R20
	MOVD	g, (R20)
	MOVD	R22, RSP
	CALL	(R2)
	MOVD	ZR, (R20)
	B	done
call:
	MOVD	R22, RSP
	CALL	(R2)
done:
	MOVD	R19, RSP
	CBNZW	R0, failed
scan:
	MOVD	(R21), R3
	CMP	R23, R3
	BNE	found
	ADD	$8, R21
	CMP	R22, R21
	BLT	scan
found:
	// A leaf function may use no stack at all; one word stands for that.
	SUB	R21, R22, R3
	ADD	$8, R3
	MOVD	R3, ret+8(FP)
	RET
failed:
	MOVD	ZR, ret+8(FP)
	RET

// func signalStack() uintptr
TEXT ·signalStack(SB), NOSPLIT, $0-8
	MOVD	g_m(g), R0
	MOVD	m_gsignal(R0), R0
	CBZ	R0, none
	MOVD	g_stack_lo(R0), R0
none:
	MOVD	R0, ret+0(FP)
	RET
