# A guest of one sector that counts in the second sector of its disk.
#
# It says `s` and the count that it finds, and then again and again adds one, writes it, and says
# `w` and the count once the write was acknowledged. A failed request is reported as `!` and tried
# again.
#
# Assembled as pulse.S is.

    .code16
    .globl _start
    .set PORT, 0x3f8
    .set BUFFER, 0x8000

_start:
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movw $0x7000, %sp
    sti
    movb %dl, drive

    movb $0x42, %ah
    call disk
    movb $'s', %al
    call number
next:
    movw 0x46c, %bx             # the BIOS' clock, 18 ticks a second
1:  hlt
    cmpw 0x46c, %bx
    je 1b
    incl BUFFER
    movb $0x43, %ah
    call disk
    movb $'w', %al
    call number
    jmp next

disk:                           # %ah: 0x42 to read, 0x43 to write
    movb %ah, what
    movw $packet, %si
    movb drive, %dl
    xorb %al, %al
    int $0x13
    jnc 1f
    movb $'!', %al
    call put
    movb what, %ah
    jmp disk
1:  ret

number:                         # %al: the letter before it
    call put
    movl BUFFER, %ebx
    movw $8, %cx
1:  roll $4, %ebx
    movb %bl, %al
    andb $15, %al
    cmpb $10, %al
    jb 2f
    addb $7, %al
2:  addb $'0', %al
    call put
    loop 1b
    movb $' ', %al
    call put
    ret

put:
    pushw %dx
    pushw %ax
    movw $PORT+5, %dx
1:  inb %dx, %al
    testb $0x20, %al
    jz 1b
    popw %ax
    movw $PORT, %dx
    outb %al, %dx
    popw %dx
    ret

drive:  .byte 0
what:   .byte 0
    .balign 4
packet: .byte 16, 0
    .word 1                     # sectors
    .word BUFFER, 0             # where to
    .quad 1                     # which

    .org 510
    .word 0xaa55
