# A guest of one sector with memory to migrate: for measuring migrations.
#
# It writes to each page from 2 MiB to 1008 MiB, so that none of them is zero, and then sends a
# dot to the serial port each millisecond. It needs 1 GiB of memory.
#
# Assembled as pulse.S is.

    .code16
    .globl _start
    .set PORT, 0x3f8            # first serial port
    .set FIRST, 0x00200000
    .set END, 0x3f000000
    .set PAGE, 4096
    .set DIVISOR, 1193          # of the timer's 1193182 Hz

_start:
    cli
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %ss
    movw $0x7000, %sp

    # A segment of 4 GiB that stays loaded in real mode.
    lgdtl table
    movl %cr0, %eax
    orb $1, %al
    movl %eax, %cr0
    jmp 1f
1:  movw $8, %bx
    movw %bx, %es
    andb $0xfe, %al
    movl %eax, %cr0
    ljmp $0, $2f

2:  movl $FIRST, %edi
fill:
    addr32 movl %edi, %es:(%edi)
    addl $PAGE, %edi
    cmpl $END, %edi
    jb fill

    movb $0x34, %al             # channel 0, rate generator
    outb %al, $0x43
    movb $(DIVISOR & 255), %al
    outb %al, $0x40
    movb $(DIVISOR >> 8), %al
    outb %al, $0x40
    sti
    movw $PORT, %dx
next:
    hlt
    movb $'.', %al
    outb %al, %dx
    jmp next

    .balign 8
segments:
    .quad 0
    .quad 0x00cf92000000ffff
table:
    .word 15
    .long segments

    .org 510
    .word 0xaa55
