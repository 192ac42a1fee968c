# A guest of one sector that fills its disk: 32 KiB after 32 KiB, a dot for each on the serial
# port, `full` when it has come to the end. A failed write is reported as `!` and tried again.
#
# Assembled as pulse.S is.

    .code16
    .globl _start
    .set PORT, 0x3f8
    .set SECTORS, 64

_start:
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movw $0x7000, %sp
    sti
    movb %dl, drive

next:
    movw $packet, %si
    movb drive, %dl
    movw $0x4300, %ax
    int $0x13
    jc failed
    movb $'.', %al
    call put
    addl $SECTORS, sector
    cmpl $32768, sector         # 16 MiB
    jb next
    movw $full, %si
1:  lodsb
    testb %al, %al
    jz stop
    call put
    jmp 1b
stop:
    hlt
    jmp stop

failed:
    movb $'!', %al
    call put
    jmp next

put:
    pushw %ax
    movw $PORT+5, %dx
1:  inb %dx, %al
    testb $0x20, %al
    jz 1b
    popw %ax
    movw $PORT, %dx
    outb %al, %dx
    ret

full:   .asciz "full\r\n"
drive:  .byte 0
    .balign 4
packet: .byte 16, 0
    .word SECTORS, 0x8000, 0
sector: .long 1, 0

    .org 510
    .word 0xaa55
