# One sector that finds out whether an accelerator can run what kernels do: it switches to 64-bit
# mode with paging, takes an exception, uses SSE, goes through 64 MiB-sized work in a loop, says
# OK on the first serial port and ends QEMU through the debug exit port.
#
# Real mode alone proves little: some hosts interpret it and then fail at the first kernel.
# The bytes are kept beside this file; a test assembles it and compares.
.code16
.globl _start
.set COM1, 0x3f8
.set EXIT, 0xf4
.set TABLES, 0x1000
_start:
    cli
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movw $0x7000, %sp
    cld
    # Three levels of tables: the first 2 MiB, mapped to themselves.
    movw $TABLES, %di
    movw $0x1800, %cx
    rep stosw
    movl $TABLES + 0x1003, TABLES
    movl $TABLES + 0x2003, TABLES + 0x1000
    movl $0x83, TABLES + 0x2000
    movl $TABLES, %eax
    movl %eax, %cr3
    movl $0x620, %eax               # PAE, and SSE with its exceptions
    movl %eax, %cr4
    movl $0xc0000080, %ecx
    rdmsr
    orw $0x100, %ax                 # long mode
    wrmsr
    lgdt gdt_pointer
    movl $0x80000011, %eax          # paging and protection
    movl %eax, %cr0
    ljmp $8, $long
.code64
long:
    # Vector 6 leads to `caught`.
    movl $caught, %eax
    movw %ax, 0x5000 + 6 * 16
    movw $8, 0x5000 + 6 * 16 + 2
    movw $0x8e00, 0x5000 + 6 * 16 + 4
    lidt idt_pointer
    ud2
caught:
    cvtsi2sd %rsp, %xmm0
    movl $1 << 24, %ecx
1:  movq %rcx, 0x8000(%rax)
    addq 0x8000(%rax), %rbx
    loop 1b
    rdtsc
    movw $COM1, %dx
    movb $'O', %al
    outb %al, %dx
    movb $'K', %al
    outb %al, %dx
    movw $EXIT, %dx
    outb %al, %dx
2:  hlt
    jmp 2b
.align 8
gdt:
    .quad 0
    .quad 0x00209a0000000000        # 64-bit code
gdt_pointer:
    .word 15
    .long gdt
idt_pointer:
    .word 0x6f
    .quad 0x5000
.org 510
.word 0xaa55
